"""Every one of the 76 kinds of bad input has a test: here, or where the thing is that reads it."""

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
        "faults/test_reads.py::test_weights_that_come_in_part_are_told",
    ],
    53: [
        "models/test_store.py::test_of_two_processes_one_fetches_and_both_have_it",
        "models/test_download.py::test_another_content_is_refused_by_its_hash",
        "models/test_download.py::test_a_disk_that_fills_up_is_told",
        "models/test_download.py::test_a_cut_transfer_goes_on_where_it_ended",
    ],
    66: [
        "sources/test_video.py::test_a_turned_video_is_set_upright",
        "sources/test_video.py::test_a_lost_stream_is_opened_again_and_given_up_after_some_times",
    ],
    69: [
        "vision/test_boxes.py::test_69_boxes_of_no_area_and_of_enormous_area",
        "vision/test_boxes.py::test_69_rows_that_are_not_finite_are_left_out",
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
        "faults/test_card.py::test_a_lost_card_is_told_to_everybody_and_nobody_waits",
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
        "faults/test_processes.py::test_a_model_that_cannot_be_kept_is_one_line",
        "backends/cuda/test_compile_cache.py::"
        "test_a_folder_that_cannot_be_made_leaves_the_contents_in_memory",
    ],
    74: [
        "faults/test_processes.py::test_a_child_forked_amid_runs_finds_the_same",
        "faults/test_processes.py::test_pools_of_processes_find_the_same",
        "faults/test_signals.py::test_a_run_ends_and_leaves_whole_files",
        "faults/test_signals.py::test_nobody_reads_any_more",
        "faults/test_exit.py::test_the_interpreter_ends",
        "serve/test_command.py::test_a_signal_lets_it_end_quietly",
    ],
    76: [
        "serve/test_limits.py::test_a_head_that_trickles_in_is_not_waited_for",
        "serve/test_limits.py::test_a_length_that_is_too_large_is_refused_before_anything_is_sent",
        "serve/test_limits.py::test_a_body_that_does_not_end_is_cut_off",
        "serve/test_limits.py::test_garbage_is_answered_and_survived",
        "serve/test_answers.py::test_other_types_are_refused",
        "models/test_download.py::test_plain_http_is_refused_unless_a_test_allows_it",
        "models/test_download.py::test_a_redirect_on_this_machine_is_followed",
        "sources/test_remote_picture.py::test_what_is_no_picture_is_an_image_error",
    ],
}


def test_no_kind_is_forgotten():
    here = {row[0] for table in TABLES for row in table}
    for path in Path(__file__).parent.glob("test_*.py"):
        for function in named.functions(f"bad_inputs/{path.name}"):
            here |= {int(number) for number in re.findall(r"_(\d\d)(?=_)", function)}
    assert here | set(ELSEWHERE) == set(range(1, 77))


def test_what_is_tested_elsewhere_is_there():
    assert named.missing([name for names in ELSEWHERE.values() for name in names]) == []
