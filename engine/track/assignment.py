"""The linear assignment problem, solved exactly.

This is the Jonker-Volgenant algorithm. Rows take their cheapest column, rows that compete for a
column bid for it, and the few remaining rows are added along shortest augmenting paths.
"""

from __future__ import annotations

import numpy as np

from engine.arrays import Array
from engine.track.overlap import true_places

_BIDS = 4  # per row; rows still without a column are then added one by one


def assign(costs: Array, limit: float) -> tuple[Array, Array]:
    """Return the rows and columns of the pairs for which the sum of `limit` - cost is largest.

    A pair of cost `limit` or more, or NaN, is never made; rows and columns may stay unmatched.
    """
    costs = np.asarray(costs, np.float64)
    rows, columns = true_places(costs < limit)
    is_best = best_pairs(rows, columns, costs[rows, columns] - limit)
    return rows[is_best], columns[is_best]


def best_pairs(rows: Array, columns: Array, costs: Array) -> Array:
    """Return a mask of the disjoint pairs with the lowest sum of costs, which are all below 0."""
    # Most pairs are the only choice of both their row and their column, and need no solving.
    is_best: Array = (np.bincount(rows)[rows] == 1) & (np.bincount(columns)[columns] == 1)
    if not is_best.all():
        open_ones = ~is_best
        rows, columns = _renumbered(rows[open_ones]), _renumbered(columns[open_ones])
        table = np.full((rows.max() + 1, columns.max() + 1), np.inf)
        table[rows, columns] = costs[open_ones]  # an unmatched row costs 0
        is_best[open_ones] = _Solver(table).solve()[rows] == columns
    return is_best


def _renumbered(numbers: Array) -> Array:
    """Return numbers without gaps, in the same order."""
    new = np.cumsum(np.bincount(numbers) > 0) - 1
    return np.asarray(new[numbers])


class _Solver:
    """Rows and columns with prices, so that no pair is cheaper than its row and column together.

    Matched pairs cost exactly that sum. Unmatched rows and columns have the price 0.
    """

    def __init__(self, table: Array) -> None:
        self._table = table
        self._row_prices = table.min(axis=1)
        self._column_prices = np.zeros(table.shape[1])
        self._column_of = np.full(table.shape[0], -1)
        self._row_of = np.full(table.shape[1], -1)

    def solve(self) -> Array:
        """Return the column of each row, or -1 if it is unmatched."""
        cheapest = self._table.argmin(axis=1)
        numbers = np.arange(len(cheapest))
        self._row_of[cheapest[::-1]] = numbers[::-1]  # among several rows, the first wins
        has_won = self._row_of[cheapest] == numbers
        self._column_of[has_won] = cheapest[has_won]
        free = (~has_won).nonzero()[0].tolist()
        for row in self._bid(free) if free else ():
            self._add(row)
        return self._column_of

    def _bid(self, free: list[int]) -> list[int]:
        """Let free rows outbid others for their cheapest column; return the remaining free rows.

        A row raises the column's price until its second choice would be equally good.
        """
        left: list[int] = []
        for _ in range(_BIDS * len(self._column_of)):
            if not free:
                break
            row = free.pop()
            costs = self._table[row] - self._column_prices
            column = int(costs.argmin())
            cost = costs[column]
            if cost >= 0:  # staying unmatched is best
                self._row_prices[row] = 0
                continue
            costs[column] = np.inf
            second = int(costs.argmin())
            second_cost = min(costs[second], 0.0)
            is_tie = cost == second_cost
            if is_tie and self._row_of[column] >= 0 and costs[second] < 0:
                column = second
            rival = int(self._row_of[column])
            self._row_prices[row] = second_cost
            self._column_prices[column] -= second_cost - cost
            self._row_of[column], self._column_of[row] = row, column
            if rival >= 0:
                self._column_of[rival] = -1
                (left if is_tie else free).append(rival)
        return left + free

    def _add(self, row: int) -> None:
        """Match one more row, or find the one best left unmatched, by Dijkstra's algorithm."""
        table, row_prices, row_of = self._table, self._row_prices, self._row_of
        offsets = -self._column_prices  # infinite for columns whose distance is final
        taken = np.where(row_of < 0, 0.0, np.inf)
        distances = table[row] + (offsets - row_prices[row])
        before = np.full(len(distances), row)  # the row through which a column is reached
        final: list[tuple[int, float]] = []
        # the cheapest end of a path: a free column, or -1 and the row that would be unmatched
        end, alone, shortest = -1, row, -row_prices[row]
        while True:
            nearest = int((distances + taken).argmin())
            if row_of[nearest] < 0 and distances[nearest] < shortest:
                end, shortest = nearest, distances[nearest]
            column = int(distances.argmin())
            distance = distances[column]
            if distance >= shortest:
                break
            final.append((column, distance))
            offsets[column] = distances[column] = np.inf
            other = row_of[column]
            if distance - row_prices[other] < shortest:
                end, alone, shortest = -1, other, distance - row_prices[other]
            through = table[other] + (offsets + (distance - row_prices[other]))
            is_shorter = through < distances
            before[is_shorter] = other
            np.minimum(distances, through, out=distances)
        row_prices[row] += shortest
        for passed, distance in final:
            row_prices[row_of[passed]] += shortest - distance
            self._column_prices[passed] -= shortest - distance
        if end < 0:
            if alone == row:
                return
            end, self._column_of[alone] = self._column_of[alone], -1
        while True:  # each row of the path moves on to its next column
            mover = before[end]
            row_of[end] = mover
            end, self._column_of[mover] = self._column_of[mover], end
            if mover == row:
                return
