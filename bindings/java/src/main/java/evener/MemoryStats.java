package evener;

import java.util.Map;

/**
 * One device's memory, in bytes, as the library's own ledger counts it.
 *
 * @param current in use
 * @param peak highest {@code current} since the start or {@link Device#resetMemoryPeak}
 * @param reserved held from the system: in use and cached
 * @param limit the cap on {@code reserved}; -1: none
 * @param byClass {@code current} by what it is for: "tensors", "weights", "packed", "arenas", "scratch", "loading", "states", "heap"
 * @param allocations blocks handed out so far
 * @param cacheHits of these, without asking the system
 * @param largestFreeBlock largest cached block
 * @param cached of {@code reserved}: blocks that nobody uses, kept for those to come
 * @param unused of {@code reserved}: in blocks in use, beyond what was asked for
 * @param freeBlocks number of cached blocks
 * @param fragmentation share of {@code cached} that is not in the largest free block: 0 to 1
 * @param weightsDropped bytes of packed weights given back so far, as others needed the memory
 * @param weightsRestored bytes of packed weights that runs packed again
 * @param cacheLimit the most that {@code cached} may be; -1: no limit
 * @param trim when cached blocks are given back
 */
public record MemoryStats(
    long current,
    long peak,
    long reserved,
    long limit,
    Map<String, Long> byClass,
    long allocations,
    long cacheHits,
    long largestFreeBlock,
    long cached,
    long unused,
    long freeBlocks,
    double fragmentation,
    long weightsDropped,
    long weightsRestored,
    long cacheLimit,
    Trim trim) {}
