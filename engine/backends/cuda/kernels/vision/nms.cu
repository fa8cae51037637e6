// Non-maximum suppression as in vision/postprocess.py, bit for bit; only survivors leave the card.
// Launched by runtime/nms_buffer.py.
//
//   list_scores  appends every score above zero, of every class of every record, to the list of its picture
//   suppress     sorts each list by score and drops boxes that overlap a better one
//
// A list has room for MOST_SCORES; if it overflows, or a score is not finite, a mark is written and the
// host works on the candidates instead. Sort keys are a score's inverted bits followed by its place in
// darknet's order: they are all different, so the order is unique.
//
// Work item  list_scores: a class of a record; suppress: one block per picture, a thread per box.
// Memory     lists are short and stay in the cache; suppress works in shared memory.
#include "common.cuh"
#include "placed_picture.cuh"

#define MOST_SCORES 1024
#define SUPPRESS_THREADS 128
#define FURTHEST 1e30f  // larger coordinates would overflow in pixels

// runtime/nms_buffer.py has the same fields.
struct Suppression {
    float threshold;
    int has_penalty, across_classes, nothing;
    double exponent;  // of the penalty
    unsigned* near;   // host memory for the start of `kept`, up to the first survivors of every row
};

extern "C" __global__ void list_scores(const unsigned* __restrict__ counter,
    const float* __restrict__ records, const PlacedPicture* __restrict__ pictures, unsigned* lengths,
    unsigned long long* __restrict__ keys, float4* __restrict__ boxes, float* __restrict__ objectness,
    int columns, int per_row)
{
    after_previous_kernel();
    const int classes = columns - 6;
    const int items = (int)*counter * classes;
    GRID_STRIDE(item, items)
    {
        const int record = item / classes;
        const int class_id = item - record * classes;
        const float* v = records + (size_t)record * columns;
        const float score = v[6 + class_id];
        if (score <= 0.f) continue;
        const unsigned number = __float_as_uint(v[0]);
        const int row = number / per_row;
        if (score - score != 0.f) {  // the host raises an error
            atomicMax(lengths + row, MOST_SCORES + 1u);
            continue;
        }
        const PlacedPicture& p = pictures[row];
        const float4 box =
            make_float4((float)((v[1] - p.margin_x) / p.ratio_x), (float)((v[2] - p.margin_y) / p.ratio_y),
                (float)(v[3] * (1. / p.ratio_x)), (float)(v[4] * (1. / p.ratio_y)));
        if (!(fabsf(box.x) < FURTHEST && fabsf(box.y) < FURTHEST && fabsf(box.z) < FURTHEST &&
                fabsf(box.w) < FURTHEST)) {
            continue;
        }
        const unsigned slot = atomicAdd(lengths + row, 1u);
        if (slot >= MOST_SCORES) continue;
        const int at = row * MOST_SCORES + slot;
        const unsigned place = (number - row * per_row) * classes + class_id;
        keys[at] = (unsigned long long)~__float_as_uint(score) << 32 | place;
        boxes[at] = box;
        objectness[at] = v[5];
    }
}

// The `_rn` intrinsics keep the compiler from contracting a multiplication and an addition into an
// FMA.
DEVICE float overlap(const float4& a, const float4& b, const Suppression& how)
{
    const float a_left = __fsub_rn(a.x, a.z / 2.f), a_right = __fadd_rn(a.x, a.z / 2.f);
    const float b_left = __fsub_rn(b.x, b.z / 2.f), b_right = __fadd_rn(b.x, b.z / 2.f);
    const float a_top = __fsub_rn(a.y, a.w / 2.f), a_bottom = __fadd_rn(a.y, a.w / 2.f);
    const float b_top = __fsub_rn(b.y, b.w / 2.f), b_bottom = __fadd_rn(b.y, b.w / 2.f);
    const float wide = __fsub_rn(fminf(a_right, b_right), fmaxf(a_left, b_left));
    const float tall = __fsub_rn(fminf(a_bottom, b_bottom), fmaxf(a_top, b_top));
    const float common = wide < 0.f || tall < 0.f ? 0.f : __fmul_rn(wide, tall);
    const float both = __fadd_rn(__fmul_rn(a.z, a.w), __fmul_rn(b.z, b.w));
    const float united = __fsub_rn(both, common);
    const float ratio = common == 0.f || united == 0.f ? 0.f : __fdiv_rn(common, united);
    // A penalty is never negative, so that it changes nothing below the threshold; pow() is slow.
    if (!how.has_penalty || !(ratio > how.threshold)) return ratio;
    const float width = __fsub_rn(fmaxf(a_right, b_right), fminf(a_left, b_left));
    const float height = __fsub_rn(fmaxf(a_bottom, b_bottom), fminf(a_top, b_top));
    const float diagonal = __fadd_rn(__fmul_rn(width, width), __fmul_rn(height, height));
    const float right = __fsub_rn(a.x, b.x), down = __fsub_rn(a.y, b.y);
    const float distance = __fadd_rn(__fmul_rn(right, right), __fmul_rn(down, down));
    const double penalty = pow((double)__fdiv_rn(distance, diagonal), how.exponent);
    return diagonal == 0.f ? ratio : __fsub_rn(ratio, (float)penalty);
}

// `kept` is a header whose second word is the flag, a counter for each of `room` rows, the first
// `near` survivors of every row, and the remaining ones; `numbers` is the number of counters,
// padded to 16 bytes. A counter of all ones marks an overflowed list. All but the remaining
// survivors is written to host memory as well, which takes less time than a copy afterwards.
extern "C" __global__ void suppress(unsigned* lengths, const unsigned long long* __restrict__ keys,
    const float4* __restrict__ boxes, const float* __restrict__ objectness,
    const Suppression* __restrict__ suppression, const unsigned* __restrict__ flag,
    unsigned* __restrict__ kept, int rows, int room, int numbers, int near, int classes)
{
    after_previous_kernel();
    __shared__ unsigned long long key[MOST_SCORES];
    __shared__ unsigned short from[MOST_SCORES];
    __shared__ float4 box[MOST_SCORES];
    __shared__ float sure[MOST_SCORES];
    __shared__ unsigned char is_alive[MOST_SCORES];
    const int thread = threadIdx.x;
    const Suppression how = *suppression;
    auto note = [&](int word, unsigned value) {
        kept[word] = value;
        how.near[word] = value;
    };
    if (blockIdx.x == 0 && thread == 0) note(1, *flag);
    float4* first = reinterpret_cast<float4*>(kept + 4 + numbers);
    float4* first_near = reinterpret_cast<float4*>(how.near + 4 + numbers);
    for (int row = blockIdx.x; row < rows; row += gridDim.x) {
        const int found = lengths[row];
        __syncthreads();  // all threads have read it
        if (thread == 0) lengths[row] = 0;
        if (found > MOST_SCORES) {
            if (thread == 0) note(4 + row, 0xFFFFFFFFu);
            continue;
        }
        int size = 1;
        while (size < found) size *= 2;
        for (int i = thread; i < size; i += SUPPRESS_THREADS) {
            key[i] = i < found ? keys[row * MOST_SCORES + i] : ~0ull;
            from[i] = (unsigned short)i;
            is_alive[i] = 1;
        }
        __syncthreads();
        for (int run = 2; run <= size; run *= 2) {  // bitonic sort: sorted runs double
            for (int distance = run / 2; distance > 0; distance /= 2) {
                for (int i = thread; i < size; i += SUPPRESS_THREADS) {
                    const int j = i ^ distance;
                    if (j > i && (key[i] > key[j]) == ((i & run) == 0)) {
                        const unsigned long long later = key[i];
                        const unsigned short origin = from[i];
                        key[i] = key[j];
                        from[i] = from[j];
                        key[j] = later;
                        from[j] = origin;
                    }
                }
                __syncthreads();
            }
        }
        for (int i = thread; i < found; i += SUPPRESS_THREADS) {
            box[i] = boxes[row * MOST_SCORES + from[i]];
            sure[i] = objectness[row * MOST_SCORES + from[i]];
        }
        __syncthreads();
        int count = 0;
        for (int i = 0; i < found; ++i) {
            if (!is_alive[i]) continue;  // uniform: entries up to i are no longer written
            const unsigned class_id = (unsigned)key[i] % classes;
            if (thread == 0) {
                const int far = MOST_SCORES - near;
                const bool is_near = count < near;
                const int place =
                    2 * (is_near ? row * near + count : room * near + row * far + count - near);
                const float score = __uint_as_float(~(unsigned)(key[i] >> 32));
                const float4 rest = make_float4(sure[i], score, __uint_as_float(class_id), 0.f);
                first[place] = box[i];
                first[place + 1] = rest;
                if (is_near) {
                    first_near[place] = box[i];
                    first_near[place + 1] = rest;
                }
            }
            ++count;
            for (int j = i + 1 + thread; j < found; j += SUPPRESS_THREADS) {
                if (!is_alive[j]) continue;
                if (!how.across_classes && (unsigned)key[j] % classes != class_id) continue;
                if (overlap(box[i], box[j], how) > how.threshold) is_alive[j] = 0;
            }
            __syncthreads();
        }
        if (thread == 0) note(4 + row, count);
        __syncthreads();  // the next row uses the same memory
    }
}
