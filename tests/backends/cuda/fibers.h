// The threads of a block as fibers of one thread: each runs until it waits for others, then the next runs.
//
// Unlike swapcontext, a switch does not save the signal mask, which would take two system calls. There
// are no containers of the standard library: every kernel is a unit, and would compile them again.
#pragma once
#if !defined(__x86_64__)
#include <setjmp.h>
#include <ucontext.h>
#endif

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

#if defined(__x86_64__)
typedef void** Place;  // where on its stack the registers lie that a function has to keep

// Leaves one place and goes on at another. setjmp() and longjmp() take several times as long.
__attribute__((naked, noipa)) static void go(Place* from, Place to)
{
    asm("push %rbp\n push %rbx\n push %r12\n push %r13\n push %r14\n push %r15\n"
        "mov %rsp, (%rdi)\n mov %rsi, %rsp\n"
        "pop %r15\n pop %r14\n pop %r13\n pop %r12\n pop %rbx\n pop %rbp\n ret");
}
#else
typedef jmp_buf Place;
#endif

struct Fiber {
    char* stack;  // untouched pages take no memory
    Place place;
    bool is_done;
};

static const int STACK_BYTES = 256 << 10;
static const int MOST_FIBERS = 8 << 10;
static Fiber fibers[MOST_FIBERS];
static Work fiber_work;
static Place scheduler;
static int running;

// Returns to the scheduler until this fiber's next turn.
inline void wait_a_turn()
{
#if defined(__x86_64__)
    go(&fibers[running].place, scheduler);
#else
    if (!_setjmp(fibers[running].place)) _longjmp(scheduler, 1);
#endif
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

#if defined(__x86_64__)
static void resume(Fiber& fiber)
{
    if (!fiber.stack) {
        fiber.stack = static_cast<char*>(std::malloc(STACK_BYTES));
        fiber.place = reinterpret_cast<Place>(fiber.stack + STACK_BYTES) - 8;
        std::memset(fiber.place, 0, 8 * sizeof(void*));  // six registers, and no function to return to
        fiber.place[6] = reinterpret_cast<void*>(start_fiber);
    }
    go(&scheduler, fiber.place);
}
#else
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
#endif

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
