// The threads of a block as fibers of one thread: each runs until it waits for others, then the next runs.
//
// Unlike swapcontext, a switch does not save the signal mask, which would take two system calls.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <vector>

struct Fiber {
    ucontext_t start;
    jmp_buf place;
    bool has_begun = false;
    bool is_done = false;
};

static const int STACK_BYTES = 256 << 10;
static std::vector<Fiber> fibers;
static std::vector<std::unique_ptr<char[]>> stacks;  // reused; untouched pages take no memory
static std::function<void()> fiber_work;
static jmp_buf scheduler;
static int running;

// Returns to the scheduler until this fiber's next turn.
inline void wait_a_turn()
{
    if (!_setjmp(fibers[running].place)) _longjmp(scheduler, 1);
}

static void start_fiber()
{
    fiber_work();
    fibers[running].is_done = true;
    _longjmp(scheduler, 1);
}

static __attribute__((noinline)) void resume(Fiber& fiber)
{
    if (_setjmp(scheduler)) return;
    if (fiber.has_begun) _longjmp(fiber.place, 1);
    fiber.has_begun = true;
    setcontext(&fiber.start);
}

// Runs `work` once in each of `count` fibers, which take turns; on_turn(fiber) runs before each turn.
template <class OnTurn> void run_fibers(int count, std::function<void()> work, OnTurn on_turn)
{
    fiber_work = std::move(work);
    fibers.assign(count, {});
    while ((int)stacks.size() < count) stacks.emplace_back(new char[STACK_BYTES]);
    for (int i = 0; i < count; ++i) {
        getcontext(&fibers[i].start);
        fibers[i].start.uc_stack.ss_sp = stacks[i].get();
        fibers[i].start.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fibers[i].start, start_fiber, 0);
    }
    for (int left = count; left > 0;) {
        for (running = 0; running < count; ++running) {
            if (fibers[running].is_done) continue;
            on_turn(running);
            resume(fibers[running]);
            left -= fibers[running].is_done;
        }
    }
}

// A barrier of fibers: the last one to arrive releases all.
struct Meeting {
    int count = 0, generation = 0;
};

inline void meet(Meeting& meeting, int size)
{
    const int generation = meeting.generation;
    if (++meeting.count == size) {
        meeting.count = 0;
        ++meeting.generation;
    }
    while (meeting.generation == generation) wait_a_turn();
}
