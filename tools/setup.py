"""Puts what the tools borrow from the repository into the wheel and the sdist."""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).resolve().parent / "src"))
from opbook_tools import borrowed


class BuildPy(build_py):
    """The package, with copies; an editable one finds the originals."""

    def run(self):
        """Build, then copy."""
        super().run()
        if not self.editable_mode:
            borrowed.copy_into(Path(self.build_lib, "opbook_tools"))


class Sdist(sdist):
    """The sources, with copies: nothing stands beside an sdist."""

    def make_release_tree(self, base_dir, files):
        """Make the tree, then copy."""
        super().make_release_tree(base_dir, files)
        borrowed.copy_into(Path(base_dir, "src", "opbook_tools"))


setup(cmdclass={"build_py": BuildPy, "sdist": Sdist})
