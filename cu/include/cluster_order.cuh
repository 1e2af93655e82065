// Which tiles a persistent cluster takes, and in which order all of them are taken.
//
// Tiles here are a cluster's: CLUSTER_M x CLUSTER_N of a block's. They are numbered in strips of STRIP tiles, so that
// those which are multiplied at about the same time share operands in L2.
#pragma once

#include "tile_order.cuh"

// The numbering. Strips are STRIP rows of tiles, and neighbours in number are neighbours along m. TURNED: columns, and
// along n. BACK: every other strip is walked back, so that it begins beside the end of the one before.
template <bool TURNED, int STRIP, bool BACK>
struct ClusterOrder {
    int tiles_m, tiles_n;

    __device__ __forceinline__ int count() const { return tiles_m * tiles_n; }

    __device__ __forceinline__ TileIndex at(int number) const {
        if (!TURNED) return in_strips(number, tiles_m, tiles_n);
        const TileIndex turned = in_strips(number, tiles_n, tiles_m);
        return {turned.n, turned.m};
    }

    __device__ __forceinline__ static TileIndex in_strips(int number, int rows, int columns) {
        TileIndex tile = tile_of_block(number, rows, columns, STRIP);
        if (BACK && tile.m / STRIP % 2) tile.n = columns - 1 - tile.n;
        return tile;
    }
};

// A cluster's share: numbers `first`, `first + step`, ... below `end`.
struct Share {
    int first, step, end;
};

// All clusters take turns.
__device__ __forceinline__ Share share_in_turn(int cluster, int clusters, int tiles) {
    return {cluster, clusters, tiles};
}

// The same for places that come in columns of eight, each on one GPC (gpc_claim.cuh): what is left over of the clusters
// must not shift the columns from one wave to the next, so it works from where the columns' waves end.
__device__ __forceinline__ Share share_in_columns(int place, int clusters, int tiles) {
    const int in_columns = clusters / 8 * 8, left_over = clusters - in_columns;
    if (left_over == 0 || in_columns == 0) return share_in_turn(place, clusters, tiles);
    const int waves = (tiles + clusters - 1) / clusters, border = min(tiles, waves * in_columns);
    if (place < in_columns) return {place, in_columns, border};
    return {border + place - in_columns, left_over, tiles};
}
