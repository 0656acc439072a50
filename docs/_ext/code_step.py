"""``code-step``: a file with the lines lit that an older version does not have."""

import difflib
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives

from proof.directives import ProvenInclude


class CodeStep(ProvenInclude):
    """``literalinclude`` with the option ``:since: OLDER_FILE``."""

    option_spec = ProvenInclude.option_spec | {"since": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        if since := self.options.pop("since", None):
            _, old = self.env.relfn2path(since)
            _, new = self.env.relfn2path(self.arguments[0])
            self.env.note_dependency(old)
            added = _added(Path(old), Path(new))
            lit = [
                str(place)
                for place, number in enumerate(self.selected(new), 1)
                if number in added
            ]
            if lit:
                self.options["emphasize-lines"] = ",".join(lit)
        return super().run()


def _added(old: Path, new: Path) -> set[int]:
    before, after = (p.read_text(encoding="utf-8").splitlines() for p in (old, new))
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return {
        number + 1
        for tag, _, _, start, stop in matcher.get_opcodes()
        if tag in ("insert", "replace")
        for number in range(start, stop)
    }


def setup(app):
    app.setup_extension("proof")
    app.add_directive("code-step", CodeStep)
    return {"version": "1", "parallel_read_safe": True}
