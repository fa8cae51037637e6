"""The files of --jsonl and --csv, which grow line by line."""

import pytest

from engine.cli._sinks.text_output import TextOutput
from engine.errors import InputError


@pytest.mark.parametrize("existing", ["resume", "refuse"])
def test_a_file_that_another_run_made_meanwhile_is_refused(tmp_path, existing):
    path = tmp_path / "a.jsonl"
    output = TextOutput(str(path), existing=existing, incremental=True)
    path.write_text("line\n")
    with pytest.raises(InputError, match=r"another run writes it\. Wait"):
        output.open()
    assert path.read_text() == "line\n"
