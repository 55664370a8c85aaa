package evener;

import java.util.List;

/**
 * An input or output of a model or session.
 *
 * @param name the model's name of it
 * @param type "tensor(float32)", "seq(tensor(int64))"
 * @param dtype of a tensor
 * @param hasRank false: the rank is known only when it runs
 * @param dims -1: known only when it runs; the array is the record's own
 * @param symbols the model's names of the dims that are -1, or ""
 */
public record ValueInfo(String name, String type, DType dtype, boolean hasRank, long[] dims, List<String> symbols) {

  /** A function that fills an evn_value_info. */
  interface InfoCall {
    int call(long handle, int index, long info, long error);
  }

  /** A function that writes a name. */
  interface NameCall {
    int call(long handle, int index, long buffer, long capacity, long size, long error);
  }

  /** A function that writes the name of a dim. */
  interface SymbolCall {
    int call(long handle, int index, int axis, long buffer, long capacity, long size, long error);
  }

  /** Gives all inputs or outputs. Without `symbol` names of dims are those that fit. */
  static List<ValueInfo> all(NativeObject of, int count, InfoCall info, NameCall name, SymbolCall symbol) {
    return all(of, 0, count, info, name, symbol);
  }

  /** Reads the inputs or outputs from an index on. */
  static List<ValueInfo> all(NativeObject of, int first, int count, InfoCall info, NameCall name, SymbolCall symbol) {
    ValueInfo[] made = new ValueInfo[count];
    for (int i = 0; i < count; i++) made[i] = one(of, first + i, info, name, symbol);
    return List.of(made);
  }

  private static ValueInfo one(NativeObject of, int index, InfoCall info, NameCall name, SymbolCall symbol) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    try {
      long at = scratch.struct(Layout.ValueInfo.SIZE);
      of.call((handle, error) -> info.call(handle, index, at, error));
      int rank = scratch.getInt(at + Layout.ValueInfo.RANK);
      boolean hasRank = rank != Numbers.EVN_UNKNOWN_RANK;
      long[] dims = new long[hasRank ? rank : 0];
      String[] symbols = new String[dims.length];
      int stride = Layout.ValueInfo.SYMBOLS_BYTES / Numbers.EVN_MAX_RANK;
      for (int i = 0; i < dims.length; i++) {
        int axis = i;
        dims[i] = scratch.getLong(at + Layout.ValueInfo.DIMS + 8L * i);
        symbols[i] = scratch.chars(at + Layout.ValueInfo.SYMBOLS + (long) stride * i, stride);
        if (symbol != null && !symbols[i].isEmpty()) {
          symbols[i] = of.text(64, (buffer, capacity, size, error) -> symbol.call(of.handle(), index, axis, buffer, capacity, size, error));
        }
      }
      return new ValueInfo(
          of.text(64, (buffer, capacity, size, error) -> name.call(of.handle(), index, buffer, capacity, size, error)),
          scratch.chars(at + Layout.ValueInfo.TYPE, Layout.ValueInfo.TYPE_BYTES),
          DType.of(scratch.getInt(at + Layout.ValueInfo.DTYPE)),
          hasRank,
          dims,
          List.of(symbols));
    } finally {
      scratch.release(mark);
    }
  }
}
