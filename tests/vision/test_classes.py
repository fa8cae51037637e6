"""Classes that users select: names, numbers, and names that are numbers."""

import pytest

from engine.errors import InputError
from engine.vision.classes import TypedClass, class_ids_of
from engine.vision.hide import hidden_classes

NAMES = ("1", "0", "cat", "2")


@pytest.mark.parametrize(("text", "number"), [("1", 0), ("0", 1), ("cat", 2), ("2", 3), ("3", 3)])
def test_text_is_a_name_before_it_is_a_number(text, number):
    typed = TypedClass(text)
    assert class_ids_of([typed], NAMES) == [number]
    assert hidden_classes("blur", [typed], NAMES) == {number}
    assert class_ids_of([typed.resolved(NAMES)], NAMES) == [number]
    assert type(typed.resolved(NAMES)) in (int, str)


def test_other_numbers_are_numbers_and_other_strings_names():
    assert class_ids_of([1, "1"], NAMES) == [1, 0]
    for unknown in ("3", TypedClass("dog")):
        with pytest.raises(InputError, match=f"classes: no class is called '{unknown}'"):
            class_ids_of([unknown], NAMES)
