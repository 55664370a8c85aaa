package evener;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** A node of a custom operator, for as long as the method runs that got it: its handle is an error later. */
public final class Node {
  private final long handle;
  private final TensorView.Scope scope;

  Node(long handle, TensorView.Scope scope) {
    this.handle = handle;
    this.scope = scope;
  }

  /**
   * Gives the node's name.
   *
   * @return the name
   */
  public String name() {
    return NativeObject.readText(64, (buffer, capacity, size, error) -> Raw.operatorNodeName(handle, buffer, capacity, size, error));
  }

  /** Reads an attribute into memory of so many bytes. */
  private interface Read<T> {
    T read(Scratch scratch, long name, long error);
  }

  private <T> Optional<T> attribute(String name, Read<T> read) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(name);
      long error = scratch.error();
      long type = scratch.allocate(8);
      scratch.check(Raw.operatorAttributeType(handle, text, type, error), error);
      if (scratch.getInt(type) == Numbers.EVN_ATTRIBUTE_NONE) return Optional.empty();
      return Optional.of(read.read(scratch, text, error));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Gives the kind of an attribute.
   *
   * @param name its name
   * @return {@link AttributeType#NONE} where the node does not have it
   */
  public AttributeType type(String name) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(name);
      long type = scratch.allocate(8);
      long error = scratch.error();
      scratch.check(Raw.operatorAttributeType(handle, text, type, error), error);
      return AttributeType.of(scratch.getInt(type));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Gives an attribute of one whole number.
   *
   * @param name its name
   * @return the value, where the node has it
   * @throws EvenerException with {@link Status#INVALID_ARGUMENT}: it is of another kind
   */
  public Optional<Long> integer(String name) {
    return attribute(
        name,
        (scratch, text, error) -> {
          long value = scratch.allocate(8);
          scratch.check(Raw.operatorAttributeInt(handle, text, value, error), error);
          return scratch.getLong(value);
        });
  }

  /**
   * Gives an attribute of one number.
   *
   * @param name its name
   * @return the value, where the node has it
   */
  public Optional<Float> number(String name) {
    return attribute(
        name,
        (scratch, text, error) -> {
          long value = scratch.allocate(8);
          scratch.check(Raw.operatorAttributeFloat(handle, text, value, error), error);
          return Float.intBitsToFloat(scratch.getInt(value));
        });
  }

  private static String textOf(byte[] bytes) {
    return new String(bytes, 0, bytes.length - 1, StandardCharsets.UTF_8);
  }

  /**
   * Gives an attribute of one text.
   *
   * @param name its name
   * @return the value, where the node has it
   */
  public Optional<String> text(String name) {
    return attribute(
        name,
        (scratch, text, of) ->
            textOf(
                NativeObject.readBytes(
                    64, (buffer, capacity, size, error) -> Raw.operatorAttributeString(handle, text, buffer, capacity, size, error))));
  }

  /**
   * Gives an attribute of texts.
   *
   * @param name its name
   * @return the values, where the node has it
   */
  public Optional<List<String>> texts(String name) {
    return attribute(
        name,
        (scratch, text, of) -> {
          long count = scratch.allocate(8);
          scratch.check(Raw.operatorAttributeStringCount(handle, text, count, of), of);
          List<String> made = new ArrayList<>();
          for (int i = 0; i < scratch.getInt(count); i++) {
            int index = i;
            made.add(
                textOf(
                    NativeObject.readBytes(
                        64,
                        (buffer, capacity, size, error) -> Raw.operatorAttributeStringAt(handle, text, index, buffer, capacity, size, error))));
          }
          return made;
        });
  }

  /**
   * Gives an attribute of whole numbers.
   *
   * @param name its name
   * @return the values, where the node has it
   */
  public Optional<long[]> integers(String name) {
    return attribute(
        name,
        (scratch, text, error) -> {
          long at = scratch.allocate(8);
          long count = scratch.allocate(8);
          scratch.check(Raw.operatorAttributeInts(handle, text, at, count, error), error);
          long[] made = new long[Math.toIntExact(scratch.getLong(count))];
          if (made.length != 0) scope.copy(() -> Native.readLongs(scratch.getLong(at), made, made.length));
          return made;
        });
  }

  /**
   * Gives an attribute of numbers.
   *
   * @param name its name
   * @return the values, where the node has it
   */
  public Optional<float[]> numbers(String name) {
    return attribute(
        name,
        (scratch, text, error) -> {
          long at = scratch.allocate(8);
          long count = scratch.allocate(8);
          scratch.check(Raw.operatorAttributeFloats(handle, text, at, count, error), error);
          float[] made = new float[Math.toIntExact(scratch.getLong(count))];
          if (made.length != 0) scope.copy(() -> Native.readFloats(scratch.getLong(at), made, made.length));
          return made;
        });
  }

  /**
   * Gives an attribute of a tensor.
   *
   * @param name its name
   * @return the tensor, where the node has it
   */
  public Optional<TensorView> tensor(String name) {
    return attribute(
        name,
        (scratch, text, error) -> {
          long view = scratch.allocate(Layout.TensorView.SIZE);
          scratch.check(Raw.operatorAttributeTensor(handle, text, view, error), error);
          return TensorView.one(scope, view, false);
        });
  }
}
