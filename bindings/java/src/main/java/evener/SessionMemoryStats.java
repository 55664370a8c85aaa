package evener;

/**
 * What a session holds, in bytes, on all its devices together; weights and their packed copies are its model's.
 *
 * @param arenaBytes intermediate values of runs: those under way, and those that are kept
 * @param idleArenaBytes of these, kept for runs to come
 * @param peakArenaBytes highest {@code arenaBytes} so far
 * @param arenas how many there are now
 * @param arenasMade that were taken from a device's pool so far
 * @param arenasReused times that one was used which an earlier run had left
 * @param arenasDropped given back
 * @param plans plans that are kept, one for each signature of shapes
 * @param planBytes of their bookkeeping
 * @param stateBytes what states of the session hold
 */
public record SessionMemoryStats(
    long arenaBytes,
    long idleArenaBytes,
    long peakArenaBytes,
    long arenas,
    long arenasMade,
    long arenasReused,
    long arenasDropped,
    long plans,
    long planBytes,
    long stateBytes) {}
