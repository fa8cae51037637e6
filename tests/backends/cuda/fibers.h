// The threads of a block as fibers of one thread: each runs until it waits for others, then the next runs.
//
// Unlike swapcontext, a switch does not save the signal mask, which would take two system calls. There
// are no containers of the standard library: every kernel is a unit, and would compile them again.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cstdlib>
#include <cstring>

// Memory that is used again, for values that need no constructor.
template <class T> struct Room {
    T* values;
    int size;

    T& operator[](int i) { return values[i]; }
    void reserve(int count)
    {
        if (count <= size) return;
        std::free(values);
        values = static_cast<T*>(std::malloc(count * sizeof(T)));
        size = count;
    }
    void fill(int count, int byte)
    {
        reserve(count);
        std::memset(static_cast<void*>(values), byte, count * sizeof(T));
    }
};

// A function and the values that it captures; it lives as long as they do.
struct Work {
    void (*call)(const void*);
    const void* values;

    void operator()() const { call(values); }
};
template <class Function> Work work_of(const Function& function)
{
    return {[](const void* values) { (*static_cast<const Function*>(values))(); }, &function};
}

struct Fiber {
    char* stack;  // untouched pages take no memory
    jmp_buf place;
    bool is_done;
};

static const int STACK_BYTES = 256 << 10;
static const int MOST_FIBERS = 8 << 10;
static Fiber fibers[MOST_FIBERS];
static Work fiber_work;
static jmp_buf scheduler;
static int running;

// Returns to the scheduler until this fiber's next turn.
inline void wait_a_turn()
{
    if (!_setjmp(fibers[running].place)) _longjmp(scheduler, 1);
}

// A fiber that is done waits for its next work.
static void start_fiber()
{
    for (;;) {
        fiber_work();
        fibers[running].is_done = true;
        wait_a_turn();
    }
}

static __attribute__((noinline)) void resume(Fiber& fiber)
{
    if (_setjmp(scheduler)) return;
    if (fiber.stack) _longjmp(fiber.place, 1);
    ucontext_t start;
    getcontext(&start);
    fiber.stack = static_cast<char*>(std::malloc(STACK_BYTES));
    start.uc_stack.ss_sp = fiber.stack;
    start.uc_stack.ss_size = STACK_BYTES;
    makecontext(&start, start_fiber, 0);
    setcontext(&start);
}

// Runs `work` once in each of `count` fibers, which take turns; on_turn(fiber) runs before each turn.
template <class OnTurn> void run_fibers(int count, Work work, OnTurn on_turn)
{
    if (count > MOST_FIBERS) std::abort();
    fiber_work = work;
    for (int i = 0; i < count; ++i) fibers[i].is_done = false;
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
    int count, generation;
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
