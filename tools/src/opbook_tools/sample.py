"""The arguments of one call, and the tests that are made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Sample:
    """The arguments of one call of an operator.

    A tuple of positional arguments says the same in a list of samples.
    """

    args: tuple = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, arguments: Any) -> Sample:
        """Make a sample of a tuple or a list; a sample stays as it is.

        Raises:
            TypeError: It is neither.
        """
        if isinstance(arguments, Sample):
            return arguments
        if not isinstance(arguments, (tuple, list)):
            raise TypeError(
                "a sample is a tuple of arguments or an opbook_tools.Sample, but this "
                f"is of type {type(arguments).__name__}: {str(arguments)[:60]}"
            )
        return cls(tuple(arguments))


def samples(operator: Callable, arguments: Iterable[Any], **options: Any) -> Callable:
    """Make one test of each check and sample of the function below.

    The function takes ``opbook_check``, which runs the check when it is called.

    Args:
        operator: What is checked.
        arguments: Samples, or a function that returns them.
        **options: As for ``opbook_tools.check.results``.
    """

    def mark(function: Callable) -> Callable:
        function.opbook_samples = operator, arguments, options
        return function

    return mark
