package evener;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** An immutable graph and its weights. {@link Runtime#load} reads one. */
public final class Model extends NativeObject {
  Model(long handle) {
    super("model", handle, Raw::modelRelease);
  }

  static Model load(Runtime runtime, Path path, ModelOptions given, Deadline deadline) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long text = scratch.text(path.toString());
      long options = given.write(scratch, deadline);
      return new Model(runtime.out((handle, out, error) -> Raw.modelLoadFile(handle, text, options, out, error)));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(deadline);
    }
  }

  static Model load(Runtime runtime, byte[] model, ModelOptions given, Deadline deadline) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      return load(runtime, scratch.bytes(model), model.length, given.write(scratch, deadline));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(deadline);
    }
  }

  static Model load(Runtime runtime, ByteBuffer model) {
    if (!model.isDirect()) {
      byte[] bytes = new byte[model.remaining()];
      model.duplicate().get(bytes);
      return load(runtime, bytes, new ModelOptions(), null);
    }
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      runtime.handle();
      return load(runtime, Native.addressOf(model) + model.position(), model.remaining(), new ModelOptions().write(scratch, null));
    } finally {
      scratch.release(mark);
      Reference.reachabilityFence(model);
    }
  }

  private static Model load(Runtime runtime, long data, long size, long options) {
    return new Model(runtime.out((handle, out, error) -> Raw.modelLoadBuffer(handle, data, size, options, out, error)));
  }

  /**
   * Writes what the model is: inputs, outputs, operators by domain and version, parameters, bytes of weights.
   *
   * @param format {@link Format#TEXT} or {@link Format#JSON}
   * @return the text
   */
  public String describe(Format format) {
    return text(4096, (buffer, capacity, size, error) -> Raw.modelDescribe(handle(), format.value(), buffer, capacity, size, error));
  }

  /**
   * Gives the value of a metadata entry.
   *
   * @param key its key
   * @return the value, where there is one
   */
  public Optional<String> metadata(String key) {
    if (!metadataKeys().contains(key)) return Optional.empty();
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long name = scratch.text(key);
      return Optional.of(text(256, (buffer, capacity, size, error) -> Raw.modelGetMetadata(handle(), name, buffer, capacity, size, error)));
    } finally {
      scratch.release(mark);
    }
  }

  /**
   * Gives the keys of the metadata, in the order of the file.
   *
   * @return the keys
   */
  public List<String> metadataKeys() {
    int count = (int) out(Raw::modelMetadataCount);
    List<String> made = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      int index = i;
      made.add(text(64, (buffer, capacity, size, error) -> Raw.modelMetadataKey(handle(), index, buffer, capacity, size, error)));
    }
    return made;
  }

  /**
   * Gives the inputs, in the model's order; weights are none.
   *
   * @return what they are
   */
  public List<ValueInfo> inputs() {
    return ValueInfo.all(this, (int) out(Raw::modelInputCount), Raw::modelGetInputInfo, Raw::modelInputName, Raw::modelInputSymbol);
  }

  /**
   * Gives the inputs that need not be given, since they have a default.
   *
   * @return what they are
   */
  public List<ValueInfo> defaults() {
    int first = (int) out(Raw::modelInputCount);
    return ValueInfo.all(this, first, (int) out(Raw::modelDefaultCount), Raw::modelGetInputInfo, Raw::modelInputName, Raw::modelInputSymbol);
  }

  /**
   * Gives the outputs, in the model's order.
   *
   * @return what they are
   */
  public List<ValueInfo> outputs() {
    return ValueInfo.all(this, (int) out(Raw::modelOutputCount), Raw::modelGetOutputInfo, Raw::modelOutputName, Raw::modelOutputSymbol);
  }
}
