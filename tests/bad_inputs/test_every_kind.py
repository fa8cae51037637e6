"""Each of the 76 kinds of bad input has a test, here or next to the code that reads it."""

import re
from pathlib import Path

from tests import named
from tests.bad_inputs import test_networks, test_pictures, test_weights

TABLES = (
    *(test_networks.REFUSED, test_networks.RUNS, test_networks.ENCODINGS.values()),
    *(test_weights.BAD_WEIGHTS, test_weights.GOOD_WEIGHTS),
    *(test_pictures.BAD_PICTURES, test_pictures.GOOD_PICTURES, test_pictures.ARRAYS),
)

ELSEWHERE = {
    50: [
        "darknet/test_weights.py::test_item_50_a_file_that_shrinks_while_it_is_read_is_refused",
        "faults/test_reads.py::test_short_reads_of_weights_are_reported",
    ],
    53: [
        "models/test_store.py::test_two_processes_download_once",
        "models/test_download.py::test_wrong_content_is_refused_by_its_hash",
        "models/test_download.py::test_disk_that_fills_up_is_reported",
        "models/test_download.py::test_interrupted_transfer_is_resumed",
    ],
    66: [
        "sources/test_video.py::test_rotated_video_is_turned_upright",
        "sources/test_video.py::test_a_stream_that_was_never_there_is_tried_four_times",
    ],
    69: [
        "vision/test_boxes.py::test_69_boxes_of_zero_and_huge_area",
        "vision/test_boxes.py::test_69_non_finite_rows_are_dropped",
        "vision/test_boxes.py::test_equal_scores_keep_their_order",
    ],
    71: [
        "backends/cuda/test_driver.py::test_a_machine_without_a_driver_gets_one_clear_line",
        "backends/cuda/test_driver.py::test_no_card_mentions_the_variable_that_may_hide_it",
        "backends/cuda/test_driver.py::test_a_driver_older_than_cublas_is_told_so",
        "backends/cuda/test_driver.py::test_errors_of_the_device_are_told_as_its_own",
        "backends/cuda/test_program.py::"
        "test_a_network_too_large_is_refused_before_the_driver_fails",
        "faults/test_card.py::test_every_allocation_of_a_compilation_may_fail",
        "faults/test_card.py::test_lost_card_raises_in_every_caller",
    ],
    72: [
        "backends/cuda/test_compiler.py::test_nvcc_without_a_host_compiler_leaves_the_work_to_nvrtc",
        "backends/cuda/test_compiler.py::"
        "test_another_card_precision_text_or_toolkit_is_compiled_anew",
        "backends/cuda/test_library.py::test_what_is_required_and_missing_is_told_with_its_cure",
        "backends/cuda/test_library.py::test_the_newest_version_wins_by_number_not_by_letter",
    ],
    73: [
        "faults/test_processes.py::test_detecting_needs_no_home",
        "faults/test_processes.py::test_unwritable_model_folder_is_one_error_line",
        "backends/cuda/test_compile_cache.py::"
        "test_a_folder_that_cannot_be_made_leaves_the_contents_in_memory",
    ],
    74: [
        "faults/test_processes.py::test_child_forked_during_runs_finds_the_same",
        "faults/test_processes.py::test_pools_of_processes_find_the_same",
        "faults/test_signals.py::test_signal_ends_a_run_and_leaves_whole_files",
        "faults/test_signals.py::test_closed_pipe_ends_the_run",
        "faults/test_exit.py::test_interpreter_exits",
        "serve/test_command.py::test_signal_ends_the_server_quietly",
    ],
    76: [
        "serve/test_limits.py::test_slow_header_is_cut_off",
        "serve/test_limits.py::test_too_large_content_length_is_refused_before_the_body",
        "serve/test_limits.py::test_a_body_that_does_not_end_is_cut_off",
        "serve/test_limits.py::test_garbage_is_answered_and_the_server_survives",
        "serve/test_answers.py::test_other_types_are_refused",
        "models/test_download.py::test_plain_http_is_refused_unless_a_test_allows_it",
        "models/test_download.py::test_a_redirect_on_this_machine_is_followed",
        "sources/test_remote_picture.py::test_invalid_content_is_an_image_error",
    ],
}


def test_every_kind_is_listed():
    here = {row[0] for table in TABLES for row in table}
    for path in Path(__file__).parent.glob("test_*.py"):
        for function in named.functions(f"bad_inputs/{path.name}"):
            here |= {int(number) for number in re.findall(r"_(\d\d)(?=_)", function)}
    assert here | set(ELSEWHERE) == set(range(1, 77))


def test_tests_named_elsewhere_exist():
    assert named.missing([name for names in ELSEWHERE.values() for name in names]) == []
