"""The program ``gcws-search``, also as ``python -m gcws_search``."""

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_AGAIN_SECONDS = 0.001


class _WithoutPandas:
    """Hides pandas, which pyarrow imports and no command uses: 0.2 s and 65 MB."""

    def find_spec(self, fullname: str, _path: object, _target: object = None, /) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError("no command takes pandas", name=fullname)


def main() -> None:
    """Run the command line; Ctrl-C ends it with one word."""
    sys.unraisablehook = _interrupt_again
    sys.meta_path.insert(0, _WithoutPandas())
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        from gcws_search.commands.app import main as run  # noqa: PLC0415  # can be interrupted

        run()
    except KeyboardInterrupt:
        sys.exit("gcws-search: interrupted")


def _interrupt_again(lost: "UnraisableHookArgs") -> None:
    """Interrupt again if a callback of an import or of the compiler lost a Ctrl-C."""
    if issubclass(lost.exc_type, KeyboardInterrupt):
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)
    else:
        sys.__unraisablehook__(lost)


if __name__ == "__main__":
    main()
