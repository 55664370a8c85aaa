package evener;

import java.lang.ref.Reference;
import java.util.List;
import java.util.Map;

/** What one stream keeps from run to run: tensors that go from an output of one run to an input of the next ({@link RunOptions#state}). */
public final class State extends NativeObject {
  private State(long handle) {
    super("state", handle, Raw::stateRelease);
  }

  /**
   * Makes a state, with zeros in pairs without a capacity and no positions in those with one.
   *
   * @param session whose runs use it, one at a time
   * @param pairs outputs that become inputs
   * @param options null: as they are at first
   */
  public State(Session session, List<StatePair> pairs, StateOptions options) {
    this(create(session, pairs, options));
  }

  private static long create(Session session, List<StatePair> pairs, StateOptions given) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long made = scratch.allocate((long) Layout.StatePair.SIZE * pairs.size());
      for (int i = 0; i < pairs.size(); i++) {
        long at = made + (long) Layout.StatePair.SIZE * i;
        scratch.putLong(at + Layout.StatePair.OUTPUT, scratch.text(pairs.get(i).output()));
        scratch.putLong(at + Layout.StatePair.INPUT, scratch.text(pairs.get(i).input()));
        scratch.putLong(at + Layout.StatePair.CAPACITY, pairs.get(i).capacity());
      }
      long options = given == null ? 0 : given.write(scratch);
      return session.out((handle, out, error) -> Raw.stateCreate(handle, made, pairs.size(), options, out, error));
    } finally {
      scratch.release(mark);
    }
  }

  /** Gives dims by name as C takes them; NULL for none. */
  static long shapes(Scratch scratch, Map<String, long[]> shapes) {
    if (shapes.isEmpty()) return 0;
    long made = scratch.allocate((long) Layout.InputShape.SIZE * shapes.size());
    long at = made;
    for (Map.Entry<String, long[]> shape : shapes.entrySet()) {
      scratch.putLong(at + Layout.InputShape.NAME, scratch.text(shape.getKey()));
      scratch.putLong(at + Layout.InputShape.DIMS, scratch.longs(shape.getValue()));
      scratch.putInt(at + Layout.InputShape.RANK, shape.getValue().length);
      at += Layout.InputShape.SIZE;
    }
    return made;
  }

  /** Makes it as it was when it was made, and keeps its memory. */
  public void reset() {
    call(Raw::stateReset);
  }

  /**
   * Makes another state of the same contents, which goes its own way from now on.
   *
   * @return the state, which the caller closes
   */
  public State fork() {
    return new State(out(Raw::stateFork));
  }

  /**
   * Gives the number of positions of a pair.
   *
   * @param pair its place
   * @return 0 for a pair without a capacity
   */
  public long length(int pair) {
    return out((handle, out, error) -> Raw.stateLength(handle, pair, out, error));
  }

  /**
   * Cuts pairs with a capacity back to their first positions, where they have more.
   *
   * @param positions so many stay
   */
  public void truncate(long positions) {
    call((handle, error) -> Raw.stateTruncate(handle, positions, error));
  }

  /**
   * Gives the contents as bytes, for this version of the library.
   *
   * @return the bytes
   */
  public byte[] save() {
    try {
      return readBytes(1 << 14, (buffer, capacity, size, error) -> Raw.stateSave(handle(), buffer, capacity, size, error));
    } finally {
      Reference.reachabilityFence(this);
    }
  }

  /**
   * Puts what {@link #save} gave in the place of the contents; checked.
   *
   * @param saved of a state with the same pairs
   */
  public void restore(byte[] saved) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long data = scratch.bytes(saved);
      call((handle, error) -> Raw.stateRestore(handle, data, saved.length, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Writes the pairs, and how they are stored.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String describe(Format format) {
    return text(4096, (buffer, capacity, size, error) -> Raw.stateDescribe(handle(), format.value(), buffer, capacity, size, error));
  }
}
