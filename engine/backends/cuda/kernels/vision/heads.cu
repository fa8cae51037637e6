// Detection layers: their outputs, and the decoding of boxes, so that only candidates above the threshold
// leave the card. Launched by ops/heads.py and runtime/detection_buffer.py.
//
//   yolo_output    per anchor: box (4 values, or 8 with sigmas), objectness, classes; all but width and
//                  height go through the logistic
//   region_output  [cell][anchor][coords, objectness, classes], classes through a softmax over runs
//   *_candidates   records (number, x, y, w, h, objectness, scores...) in any order; `number` is the
//                  record's place in darknet's order. A record's slot is the next value of an atomic
//                  counter; there is room for every cell. A NaN is above every threshold, so that the
//                  host notices it.
//
// Work item  yolo_output: a channel of a block's pixels; region_output: one block per anchor of a cell;
//            candidates: an anchor of a cell, of which mostly only the objectness is read.
#include "common.cuh"

DEVICE float logistic(float x) { return 1.f / (1.f + expf(-x)); }

extern "C" __global__ void yolo_output(const real* __restrict__ src, real* __restrict__ out, int pixels,
    int channels, int src_pitch, int out_pitch, int entries, int box, int raw, float scale_x_y,
    unsigned* flag)
{
    after_previous_kernel();
    for (int channel = threadIdx.x; channel < channels; channel += blockDim.x) {
        const unsigned bits = yolo_mask<1>(channel % entries, entries, box);
#pragma unroll 4
        for (int pixel = blockIdx.x; pixel < pixels; pixel += gridDim.x) {
            float x[1] = {to_float(src[pixel * src_pitch + channel])};
            flag_non_finite(flag, x[0]);
            apply_yolo<false>(x, bits, raw, scale_x_y);
            put(out + pixel * out_pitch + channel, x[0]);
        }
    }
}

// `starts` and `lengths` are the runs of classes that a softmax covers; without runs scores stay raw.
extern "C" __global__ void region_output(const real* __restrict__ src, real* __restrict__ out,
    const int* __restrict__ starts, const int* __restrict__ lengths, int pixels, int area, int anchors,
    int coords, int classes, int runs, int background, int src_pitch, int out_pitch, unsigned* flag)
{
    after_previous_kernel();
    const int entries = coords + 1 + classes;
    const int channels = anchors * entries;
    for (int item = blockIdx.x; item < pixels * anchors; item += gridDim.x) {
        const int pixel = item / anchors;
        const real* v = src + pixel * src_pitch + (item - pixel * anchors) * entries;
        const int row = pixel / area;
        const int flat = row * area * channels + (item - row * area * anchors) * entries;
        for (int i = threadIdx.x; i < (runs ? coords + 1 : entries); i += blockDim.x) {
            const float x = to_float(v[i]);
            flag_non_finite(flag, x);
            put(out + nhwc_offset(flat + i, channels, area, out_pitch),
                i == coords && !background ? logistic(x) : x);
        }
        for (int r = threadIdx.x; r < runs; r += blockDim.x) {
            const int first = coords + 1 + starts[r];
            float top = to_float(v[first]);
            for (int i = 1; i < lengths[r]; ++i) top = fmaxf(top, to_float(v[first + i]));
            float sum = 0.f;
            for (int i = 0; i < lengths[r]; ++i) sum += expf(to_float(v[first + i]) - top);
            flag_non_finite(flag, sum);
            for (int i = 0; i < lengths[r]; ++i) {
                put(out + nhwc_offset(flat + first + i, channels, area, out_pitch),
                    expf(to_float(v[first + i]) - top) / sum);
            }
        }
    }
}

// A map whose values are read in (row, channel, y, x) order.
struct FlatMap {
    const real* src;
    int channels, area, pitch;

    DEVICE float operator[](int flat) const
    {
        return to_float(src[nhwc_offset(flat, channels, area, pitch)]);
    }
};

// Whether one of the classes, whose probabilities begin at `first`, scores above the threshold.
DEVICE bool has_score(const FlatMap& map, int first, int classes, float objectness, float threshold)
{
    for (int c = 0; c < classes; ++c) {
        const float score = objectness * map[first + c];
        if (!(score <= threshold) && score != 0.f) return true;
    }
    return false;
}

DEVICE void write_scores(
    float* record, const FlatMap& map, int first, int classes, float objectness, float threshold)
{
    for (int c = 0; c < classes; ++c) {
        const float score = objectness * map[first + c];
        record[6 + c] = score <= threshold ? 0.f : score;
    }
}

// A new record in the counter's next slot. Classes that only other heads have score 0.
DEVICE float* new_record(unsigned* counter, float* records, int columns, int classes, unsigned number)
{
    float* record = records + (size_t)atomicAdd(counter, 1u) * columns;
    record[0] = __uint_as_float(number);
    for (int c = 6 + classes; c < columns; ++c) record[c] = 0.f;
    return record;
}

// `anchors` holds the width and height of each anchor as a share of the network's input.
extern "C" __global__ void yolo_candidates(const real* __restrict__ src, const float* __restrict__ anchors,
    unsigned* counter, float* __restrict__ records, const float* __restrict__ threshold, int rows, int height,
    int width, int count, int classes, int src_pitch, int box, int new_coords, int point, int columns,
    int per_row, int first)
{
    after_previous_kernel();
    const int area = height * width;
    const int entries = box + 1 + classes;
    const float least = *threshold;
    GRID_STRIDE(item, rows * area * count)
    {
        const int pixel = item / count;
        const int anchor = item - pixel * count;
        const real* v = src + (size_t)pixel * src_pitch + anchor * entries;
        const float objectness = to_float(v[box]);
        if (objectness <= least) continue;
        const int row = pixel / area;
        const int cell = pixel - row * area;
        const int step = box / 4;
        float across = to_float(v[2 * step]);
        float down = to_float(v[3 * step]);
        across = new_coords ? across * 2.f * (across * 2.f) : expf(across);
        down = new_coords ? down * 2.f * (down * 2.f) : expf(down);
        across *= anchors[2 * anchor];
        down *= anchors[2 * anchor + 1];
        float x = (cell % width + to_float(v[0])) / width;
        float y = (cell / width + to_float(v[step])) / height;
        // x, y is the box's centre (0), its top left (1) or its bottom right corner (2)
        x += point == 1 ? across / 2.f : point == 2 ? -across / 2.f : 0.f;
        y += point == 1 ? down / 2.f : point == 2 ? -down / 2.f : 0.f;
        float certain = 1.f;
        if (box == 8) {
            certain -= (to_float(v[1]) + to_float(v[3]) + to_float(v[5]) + to_float(v[7])) / 4.f;
        }
        float* record =
            new_record(counter, records, columns, classes, row * per_row + first + cell * count + anchor);
        record[1] = x;
        record[2] = y;
        record[3] = across;
        record[4] = down;
        record[5] = objectness;
        for (int c = 0; c < classes; ++c) {
            float score = objectness * to_float(v[box + 1 + c]);
            if (box == 8) score *= certain;
            record[6 + c] = score <= least ? 0.f : score;
        }
    }
}

DEVICE void region_box(float* __restrict__ record, const FlatMap& map, int flat, int cell, int width,
    int height, const float* anchor)
{
    record[1] = (cell % width + logistic(map[flat])) / width;
    record[2] = (cell / width + logistic(map[flat + 1])) / height;
    record[3] = expf(map[flat + 2]) * anchor[0] / width;
    record[4] = expf(map[flat + 3]) * anchor[1] / height;
    record[5] = 1.f;
}

// An anchor of a cell: its index in its row of the batch, its first value in the map, and its objectness.
struct RegionItem {
    int row, inside, cell, anchor, flat;
    float objectness;
};

DEVICE RegionItem region_item(int item, const FlatMap& map, int count, int coords, int classes, int classfix)
{
    const int row = item / (map.area * count);
    const int inside = item - row * map.area * count;
    const int flat = row * map.area * map.channels + inside * (coords + 1 + classes);
    const float objectness = map[flat + coords];
    const bool is_dropped = classfix == -1 && objectness < .5f;
    return {row, inside, inside / count, inside % count, flat, is_dropped ? 0.f : objectness};
}

// [region] without a tree: every class has a score of its own.
extern "C" __global__ void region_candidates(const real* __restrict__ src, const float* __restrict__ anchors,
    unsigned* counter, float* __restrict__ records, const float* __restrict__ threshold, int rows, int height,
    int width, int count, int coords, int classes, int classfix, int src_pitch, int columns, int per_row,
    int first)
{
    after_previous_kernel();
    const int area = height * width;
    const FlatMap map = {src, count * (coords + 1 + classes), area, src_pitch};
    const float least = *threshold;
    GRID_STRIDE(item, rows * area * count)
    {
        const RegionItem at = region_item(item, map, count, coords, classes, classfix);
        if (!has_score(map, at.flat + coords + 1, classes, at.objectness, least)) continue;
        float* record = new_record(counter, records, columns, classes, at.row * per_row + first + at.inside);
        region_box(record, map, at.flat, at.cell, width, height, anchors + 2 * at.anchor);
        write_scores(record, map, at.flat + coords + 1, classes, at.objectness, least);
    }
}

// [region] with a tree: the probability of a class is the product of those on the path to it; the last class
// above `hierarchy` is kept. Parents precede children, so one pass suffices.
extern "C" __global__ void tree_candidates(const real* __restrict__ src, const float* __restrict__ anchors,
    const int* __restrict__ parents, unsigned* counter, float* __restrict__ records,
    float* __restrict__ scratch, const float* __restrict__ threshold, const float* __restrict__ hierarchy,
    int rows, int height, int width, int count, int coords, int classes, int classfix, int src_pitch,
    int columns, int per_row, int first)
{
    after_previous_kernel();
    const int area = height * width;
    const FlatMap map = {src, count * (coords + 1 + classes), area, src_pitch};
    const float least = *threshold;
    GRID_STRIDE(item, rows * area * count)
    {
        const RegionItem at = region_item(item, map, count, coords, classes, classfix);
        if (at.objectness <= least) continue;
        float* p = scratch + (size_t)item * classes;
        int last = -1;
        for (int c = 0; c < classes; ++c) {
            p[c] = map[at.flat + coords + 1 + c];
            if (parents[c] >= 0) p[c] *= p[parents[c]];
            if (!(p[c] <= *hierarchy)) last = c;
        }
        const bool is_sure = at.objectness == at.objectness;
        if (last < 0 && is_sure) continue;
        float* record = new_record(counter, records, columns, classes, at.row * per_row + first + at.inside);
        region_box(record, map, at.flat, at.cell, width, height, anchors + 2 * at.anchor);
        for (int c = 0; c < classes; ++c) record[6 + c] = !is_sure ? at.objectness : c == last ? p[c] : 0.f;
    }
}

// YOLOv1's [detection]: flat [cells * classes][cells * boxes objectness][cells * boxes * 4].
extern "C" __global__ void grid_candidates(const real* __restrict__ src, unsigned* counter,
    float* __restrict__ records, const float* __restrict__ threshold, int rows, int channels, int area,
    int src_pitch, int side, int boxes, int classes, int square_root, int columns, int per_row, int first)
{
    after_previous_kernel();
    const FlatMap map = {src, channels, area, src_pitch};
    const int cells = side * side;
    const float least = *threshold;
    GRID_STRIDE(item, rows * cells * boxes)
    {
        const int row = item / (cells * boxes);
        const int inside = item - row * cells * boxes;
        const int cell = inside / boxes;
        const int base = row * channels * area;
        const int box_at = base + cells * (classes + boxes) + inside * 4;
        const float objectness = map[base + cells * classes + inside];
        if (!has_score(map, base + cell * classes, classes, objectness, least)) continue;
        float* record = new_record(counter, records, columns, classes, row * per_row + first + inside);
        const float across = map[box_at + 2];
        const float down = map[box_at + 3];
        record[1] = (map[box_at] + cell % side) / side;
        record[2] = (map[box_at + 1] + cell / side) / side;
        record[3] = square_root ? across * across : across;
        record[4] = square_root ? down * down : down;
        record[5] = objectness;
        write_scores(record, map, base + cell * classes, classes, objectness, least);
    }
}
