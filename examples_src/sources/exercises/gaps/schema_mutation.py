"""Say in the schema which argument the operator changes.

`accumulate(total, x)` adds x to total, and returns nothing. Its schema promises that it
leaves both alone, so torch.compile may reorder the call, or drop it. Mend the schema.
"""

import torch

# [gap]
SCHEMA = "accumulate(Tensor total, Tensor x) -> ()"
# [/gap]

library = torch.library.Library("schema_mutation", "FRAGMENT")
library.define(SCHEMA)


@torch.library.impl(library, "accumulate", "CPU")
def accumulate(total, x):
    total.add_(x)
