"""The tests of each fault, which show that it is one error line and that no data is lost."""

import pytest

from tests import named

FAULTS = {
    "an allocation that fails": [
        "faults/test_memory.py::test_every_allocation_of_a_load_may_fail",
        "faults/test_memory.py::test_every_allocation_of_a_call_may_fail",
        "faults/test_memory.py::test_failed_call_leaves_the_state_unchanged",
        "faults/test_memory.py::test_any_amount_of_memory_gives_an_answer_or_one_error_line",
        "faults/test_card.py::test_every_allocation_of_a_compilation_may_fail",
        "faults/test_card.py::test_too_large_a_picture_leaves_the_program_usable",
    ],
    "a thread that does not start": [
        "faults/test_memory.py::test_thread_start_failure_is_reported",
    ],
    "a short read": [
        "faults/test_reads.py::test_file_with_short_reads_is_read_to_its_end",
        "faults/test_reads.py::test_short_reads_of_weights_are_reported",
        "faults/test_reads.py::test_file_that_opens_but_cannot_be_read_is_one_error_line",
        "models/test_download.py::test_a_cut_just_before_the_end_is_noticed",
    ],
    "a full disk": [
        "faults/test_disk.py::test_file_that_does_not_fit_is_one_error_line_and_is_removed",
        "faults/test_disk.py::test_file_that_was_to_be_replaced_is_kept",
        "faults/test_disk.py::test_rows_written_before_the_disk_filled_stay_whole",
        "faults/test_disk.py::test_kernel_cache_that_does_not_fit_is_kept_in_memory",
        "models/test_download.py::test_disk_that_fills_up_is_reported",
    ],
    "killed while writing a cache": [
        "faults/test_killed.py::test_files_of_a_killed_writer_are_whole",
    ],
    "killed while downloading": [
        "models/test_store.py::test_killed_process_leaves_its_partial_file_and_no_lock",
    ],
    "a launch that fails": ["faults/test_card.py::test_every_launch_of_a_run_may_fail"],
    "a device lost": [
        "faults/test_card.py::test_lost_card_raises_in_every_caller",
        "faults/test_card.py::test_lost_card_can_still_be_closed",
        "serve/test_batching.py::test_failed_device_is_reported_until_it_works_again",
    ],
    "SIGINT in a run": [
        "faults/test_signals.py::test_signal_ends_a_run_and_leaves_whole_files",
        "faults/test_signals.py::test_interrupted_picture_goes_to_every_output",
        "faults/test_signals.py::test_every_output_is_finished",
        "faults/test_signals.py::test_interrupt_waits_for_working_threads",
        "faults/test_signals.py::test_interrupted_call_leaves_the_detector_usable",
    ],
    "SIGTERM": [
        "faults/test_signals.py::test_signal_ends_a_run_and_leaves_whole_files",
        "serve/test_command.py::test_signal_ends_the_server_quietly",
    ],
    "SIGPIPE": ["faults/test_signals.py::test_closed_pipe_ends_the_run"],
    "a home that is missing or read-only": [
        "faults/test_processes.py::test_detecting_needs_no_home",
        "faults/test_processes.py::test_unwritable_model_folder_is_one_error_line",
        "backends/cuda/test_compile_cache.py::"
        "test_a_folder_that_cannot_be_made_leaves_the_contents_in_memory",
    ],
    "two processes with one cache": [
        "backends/cuda/test_compile_cache.py::test_writers_at_once_leave_one_whole_file_and_nothing_else",
        "backends/cuda/test_tune.py::test_what_two_processes_measure_is_kept_together",
        "models/test_store.py::test_two_processes_download_once",
    ],
    "fork and spawn": [
        "faults/test_processes.py::test_child_forked_during_runs_finds_the_same",
        "faults/test_processes.py::test_child_has_its_own_consistent_state",
        "faults/test_processes.py::test_stream_does_not_continue_in_a_child",
        "faults/test_processes.py::test_pools_of_processes_find_the_same",
        "backends/cuda/test_worker.py::test_a_forked_child_is_refused_instead_of_waiting_for_ever",
    ],
    "an exit with work in flight": ["faults/test_exit.py::test_interpreter_exits"],
}


@pytest.mark.parametrize("fault", FAULTS)
def test_tests_of_every_fault_exist(fault):
    assert named.missing(FAULTS[fault]) == []
