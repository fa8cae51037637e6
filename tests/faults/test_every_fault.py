"""Which tests show of each fault that it is one line and that nothing is lost or corrupted."""

import pytest

from tests import named

FAULTS = {
    "an allocation that fails": [
        "faults/test_memory.py::test_every_allocation_of_a_load_may_fail",
        "faults/test_memory.py::test_every_allocation_of_a_call_may_fail",
        "faults/test_memory.py::test_a_call_that_fails_leaves_the_state_as_it_was",
        "faults/test_memory.py::test_any_amount_of_memory_gives_an_answer_or_one_line",
        "faults/test_card.py::test_every_allocation_of_a_compilation_may_fail",
        "faults/test_card.py::test_too_large_a_picture_leaves_the_program_as_it_was",
    ],
    "a thread that does not start": [
        "faults/test_memory.py::test_threads_that_cannot_be_started_are_told",
    ],
    "a short read": [
        "faults/test_reads.py::test_a_file_that_drips_is_read_to_its_end",
        "faults/test_reads.py::test_weights_that_come_in_part_are_told",
        "faults/test_reads.py::test_what_opens_but_cannot_be_read_is_one_line",
        "models/test_download.py::test_a_cut_just_before_the_end_is_noticed",
    ],
    "a full disk": [
        "faults/test_disk.py::test_file_that_does_not_fit_is_one_error_line_and_is_removed",
        "faults/test_disk.py::test_file_that_was_to_be_replaced_is_kept",
        "faults/test_disk.py::test_rows_written_before_the_disk_filled_stay_whole",
        "faults/test_disk.py::test_kernel_cache_that_does_not_fit_is_kept_in_memory",
        "models/test_download.py::test_a_disk_that_fills_up_is_told",
    ],
    "killed while writing a cache": [
        "faults/test_killed.py::test_what_a_killed_process_was_writing_is_whole",
    ],
    "killed while downloading": [
        "models/test_store.py::test_a_killed_process_leaves_its_part_and_no_lock",
    ],
    "a launch that fails": ["faults/test_card.py::test_every_launch_of_a_run_may_fail"],
    "a device lost": [
        "faults/test_card.py::test_a_lost_card_is_told_to_everybody_and_nobody_waits",
        "faults/test_card.py::test_what_a_lost_card_held_can_still_be_closed",
        "serve/test_batching.py::test_a_device_that_fails_is_told_of_until_it_works_again",
    ],
    "SIGINT in a run": [
        "faults/test_signals.py::test_a_run_ends_and_leaves_whole_files",
        "faults/test_signals.py::test_what_a_picture_has_goes_to_every_output",
        "faults/test_signals.py::test_every_output_is_finished",
        "faults/test_signals.py::test_an_interrupt_waits_for_the_threads_that_are_at_work",
        "faults/test_signals.py::test_a_call_that_is_interrupted_leaves_the_detector_right",
    ],
    "SIGTERM": [
        "faults/test_signals.py::test_a_run_ends_and_leaves_whole_files",
        "serve/test_command.py::test_a_signal_lets_it_end_quietly",
    ],
    "SIGPIPE": ["faults/test_signals.py::test_nobody_reads_any_more"],
    "a home that is missing or read-only": [
        "faults/test_processes.py::test_detecting_needs_no_home",
        "faults/test_processes.py::test_a_model_that_cannot_be_kept_is_one_line",
        "backends/cuda/test_compile_cache.py::"
        "test_a_folder_that_cannot_be_made_leaves_the_contents_in_memory",
    ],
    "two processes with one cache": [
        "backends/cuda/test_compile_cache.py::test_writers_at_once_leave_one_whole_file_and_nothing_else",
        "backends/cuda/test_tune.py::test_what_two_processes_measure_is_kept_together",
        "models/test_store.py::test_of_two_processes_one_fetches_and_both_have_it",
    ],
    "fork and spawn": [
        "faults/test_processes.py::test_a_child_forked_amid_runs_finds_the_same",
        "faults/test_processes.py::test_state_is_whole_in_a_child_and_its_own",
        "faults/test_processes.py::test_a_stream_does_not_go_on_in_a_child",
        "faults/test_processes.py::test_pools_of_processes_find_the_same",
        "backends/cuda/test_worker.py::test_a_forked_child_is_refused_instead_of_waiting_for_ever",
    ],
    "an exit with work in flight": ["faults/test_exit.py::test_the_interpreter_ends"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_tests_of_a_fault_are_there(fault):
    assert named.missing(FAULTS[fault]) == []
