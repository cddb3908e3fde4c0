"""Found by the Pythons that `stallbook attach` starts: it attaches, and gives way to the one whose name it took.

The engine's Python may be another than the one that stallbook is installed in, so this package is found by its place.
"""

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120


def _attach() -> None:
    if not os.environ.get("STALLBOOK"):
        return
    try:
        if "stallbook" not in sys.modules:
            home = os.path.dirname(os.path.dirname(_HERE))  # noqa: PTH120
            spec = spec_from_file_location(
                "stallbook", os.path.join(home, "__init__.py"), submodule_search_locations=[home]  # noqa: PTH118
            )  # fmt: skip
            package = sys.modules["stallbook"] = module_from_spec(spec)  # type: ignore[arg-type]
            spec.loader.exec_module(package)  # type: ignore[union-attr]
        from stallbook.adapters.attach import attach

        attach()
    except Exception as error:
        print(f"stallbook: not recording: {error!r}", file=sys.stderr)


def _give_way() -> None:
    """Run the `sitecustomize` that Python would have found without this one."""
    places = [os.path.abspath(one or ".") for one in sys.path]  # noqa: PTH100
    behind = places.index(_HERE) + 1 if _HERE in places else 0  # one before it may have given way to this one
    others = [one for one, place in list(zip(sys.path, places, strict=True))[behind:] if place != _HERE]
    spec = PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


_attach()
_give_way()
