"""What a class made by `frozen` shares with a frozen dataclass, held against `dataclasses` itself."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from torchenv.system.values import frozen


@frozen
class Point:
    """Two numbers, what they are called, and notes that do not count."""

    x: int
    y: int = 2
    names: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Model:
    """The same as `dataclasses` makes it."""

    x: int
    y: int = 2
    names: tuple[str, ...] = field(default_factory=tuple)
    note: str = field(default="", compare=False, repr=False)


@frozen(kw_only=True)
class Named:
    """A class that takes no positional argument."""

    x: int
    later: int = 0


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((1,), {}), ((1, 3), {"note": "n"}), ((), {"x": 1, "names": ("a",)}), ((1, 2, ("b",), "note"), {})],
)
def test_an_instance_is_what_a_dataclass_makes_of_the_arguments(
    arguments: tuple[Any, ...], named: dict[str, Any]
) -> None:
    point, model = Point(*arguments, **named), Model(*arguments, **named)
    assert asdict(point) == asdict(model)
    assert repr(point) == repr(model).replace("Model", "Point")
    assert hash(point) == hash(model)


@pytest.mark.parametrize(
    "make",
    [
        lambda cls: cls(),
        lambda cls: cls(1, 2, (), "", 5),
        lambda cls: cls(1, x=1),
        lambda cls: cls(1, z=1),
        lambda cls: cls(x=1, z=1, y=2),
    ],
)
@pytest.mark.parametrize("cls", [Point, Model])
def test_arguments_that_do_not_fit_are_refused(cls: type, make: Callable[[type], object]) -> None:
    with pytest.raises(TypeError):
        make(cls)


def test_a_keyword_argument_is_not_positional() -> None:
    with pytest.raises(TypeError, match="0 positional"):
        Named(1)  # type: ignore[call-arg]
    assert Named(x=1) == Named(x=1, later=0)


def test_what_is_not_compared_makes_no_difference() -> None:
    assert Point(1, note="a") == Point(1, note="b")
    assert hash(Point(1, note="a")) == hash(Point(1, note="b"))
    others: list[object] = [Point(2), Model(1), (1, 2, (), "")]
    assert Point(1) not in others


@pytest.mark.parametrize("name", ["x", "note", "unknown"])
def test_nothing_can_be_changed(name: str) -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        setattr(point, name, 3)
    with pytest.raises(FrozenInstanceError):
        delattr(point, name)
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_copies_are_equal() -> None:
    point = Point(1, names=("a",), note="n")
    for other in (replace(point), copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert asdict(other) == asdict(point)
    assert replace(point, y=7) == Point(1, 7, ("a",))
    assert [item.name for item in fields(Point)] == ["x", "y", "names", "note"]


def test_a_pattern_takes_it_apart() -> None:
    match Point(1, 5):
        case Point(1, y):
            assert y == 5
        case _:
            pytest.fail("the pattern did not match")
