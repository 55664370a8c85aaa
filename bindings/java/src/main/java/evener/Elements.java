package evener;

/** Sizes of elements. */
final class Elements {
  private Elements() {}

  /** Gives the bytes of an element; 0: less than a byte, strings, or a type that is not known. */
  static int bytesOf(DType dtype) {
    switch (dtype) {
      case UINT8, INT8, BOOL, FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, FLOAT8E8M0:
        return 1;
      case UINT16, INT16, FLOAT16, BFLOAT16:
        return 2;
      case FLOAT32, INT32, UINT32:
        return 4;
      case FLOAT64, INT64, UINT64, COMPLEX64:
        return 8;
      case COMPLEX128:
        return 16;
      default:
        return 0;
    }
  }
}
