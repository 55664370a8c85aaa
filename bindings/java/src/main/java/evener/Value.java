package evener;

import java.util.ArrayList;
import java.util.List;

/** A tensor, or a sequence, optional or map. A value never changes; what it holds is shared. */
public final class Value extends NativeObject {
  Value(long handle) {
    super("value", handle, Raw::valueRelease);
  }

  /**
   * Makes a value of a tensor, whose bytes must not be written while the value is in use.
   *
   * @param tensor the tensor
   * @return the value, which the caller closes
   */
  public static Value of(Tensor tensor) {
    return new Value(tensor.out(Raw::valueFromTensor));
  }

  /**
   * Makes a sequence, an optional or a map.
   *
   * @param runtime of the parts
   * @param type "seq(tensor(float32))", "optional(tensor(int64))", "map(string,tensor(float32))"
   * @param parts of a sequence its elements; of an optional one or none; of a map two, a tensor of keys and one of values
   * @return the value, which the caller closes
   */
  public static Value of(Runtime runtime, String type, Value... parts) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(type);
      long at = scratch.handles(parts);
      return new Value(runtime.out((handle, out, error) -> Raw.valueCreate(handle, text, at, parts.length, out, error)));
    } finally {
      scratch.release(mark);
      java.lang.ref.Reference.reachabilityFence(parts);
    }
  }

  /**
   * Gives the type.
   *
   * @return "tensor(float32)", "seq(tensor(int64))"
   */
  public String type() {
    return text(64, (buffer, capacity, size, error) -> Raw.valueGetType(handle(), buffer, capacity, size, error));
  }

  /**
   * Gives the parts: of a sequence its elements, of an optional one or none, of a map keys and values, of a tensor none.
   *
   * @return the parts, which the caller closes
   */
  public List<Value> parts() {
    int count = (int) out(Raw::valuePartCount);
    List<Value> made = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      int index = i;
      made.add(new Value(out((handle, out, error) -> Raw.valuePartAt(handle, index, out, error))));
    }
    return made;
  }

  /**
   * Gives the tensor that this value is, without a copy.
   *
   * @return the tensor, which the caller closes
   */
  public Tensor tensor() {
    return new Tensor(out(Raw::valueGetTensor));
  }
}
