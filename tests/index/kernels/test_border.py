"""Named tuples cross from Python into compiled code as plain ones."""

from typing import Any, NamedTuple

from gcws_search.index.kernels.lanes.border import from_python


class Part(NamedTuple):
    first: int
    second: int


class Recorder:
    """Stands for a compiled function."""

    def __init__(self) -> None:
        self.taken: tuple[Any, ...] = ()

    def py_func(self, a: Part, b: int, out: Part) -> int:
        raise NotImplementedError

    def __call__(self, *args: object) -> int:
        self.taken = args
        return 7


def test_a_kernel_takes_plain_tuples_where_named_ones_are_said() -> None:
    recorder = Recorder()
    kernel: Any = from_python(recorder)
    assert kernel(Part(1, 2), 3, Part(4, 5)) == 7
    assert recorder.taken == ((1, 2), 3, (4, 5))
    assert [type(each) for each in recorder.taken] == [tuple, int, tuple]
