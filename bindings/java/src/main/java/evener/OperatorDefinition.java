package evener;

/** What a custom operator is called and takes. */
public final class OperatorDefinition {
  private final String domain;
  private final String name;
  private int sinceVersion = 1;
  private int minInputs = 1;
  private int maxInputs = 1;
  private int minOutputs = 1;
  private int maxOutputs = 1;
  private int valueInputs;
  private boolean isCallers;

  /**
   * Makes one with one input and one output.
   *
   * @param domain of the operator in the model; not that of ONNX itself
   * @param name of the operator
   */
  public OperatorDefinition(String domain, String name) {
    this.domain = domain;
    this.name = name;
  }

  /**
   * Sets the first version of the domain that this is for.
   *
   * @param version 1 or more
   * @return this
   */
  public OperatorDefinition since(int version) {
    sinceVersion = version;
    return this;
  }

  /**
   * Sets how many inputs it takes.
   *
   * @param least 0 or more
   * @param most -1: any number
   * @return this
   */
  public OperatorDefinition inputs(int least, int most) {
    minInputs = least;
    maxInputs = most;
    return this;
  }

  /**
   * Sets how many outputs it gives.
   *
   * @param least 0 or more
   * @param most -1: any number
   * @return this
   */
  public OperatorDefinition outputs(int least, int most) {
    minOutputs = least;
    maxOutputs = most;
    return this;
  }

  /**
   * Says on the values of which inputs dims of outputs depend.
   *
   * @param places of inputs, 0 to 31
   * @return this
   */
  public OperatorDefinition valueInputs(int... places) {
    valueInputs = 0;
    for (int place : places) {
      if (place < 0 || place > 31) throw EvenerException.argument("a value input at place " + place);
      valueInputs |= 1 << place;
    }
    return this;
  }

  /**
   * Has the operator's methods called on no thread but one that is inside of a call of this package, as what depends on a thread's own values, or on locks
   * that it holds, needs it. Models with such operators cannot be submitted ({@link Status#UNSUPPORTED}).
   *
   * @return this
   */
  public OperatorDefinition onCallersThread() {
    isCallers = true;
    return this;
  }

  void register(Runtime runtime, Operator operator) {
    Scratch scratch = Scratch.get();
    long mark = scratch.mark();
    long held = 0;
    boolean isRegistered = false;
    try {
      long made = scratch.allocate(Layout.Operator.SIZE);
      runtime.handle();
      Raw.operatorInit(made, Layout.Operator.SIZE);
      scratch.putInt(made + Layout.Operator.SINCE_VERSION, sinceVersion);
      scratch.putLong(made + Layout.Operator.DOMAIN, scratch.text(domain));
      scratch.putLong(made + Layout.Operator.NAME, scratch.text(name));
      scratch.putInt(made + Layout.Operator.MIN_INPUTS, minInputs);
      scratch.putInt(made + Layout.Operator.MAX_INPUTS, maxInputs);
      scratch.putInt(made + Layout.Operator.MIN_OUTPUTS, minOutputs);
      scratch.putInt(made + Layout.Operator.MAX_OUTPUTS, maxOutputs);
      scratch.putInt(made + Layout.Operator.VALUE_INPUTS, valueInputs);
      scratch.putLong(made + Layout.Operator.FLAGS, isCallers ? Numbers.EVN_OPERATOR_CALLER_THREAD : 0);
      if (operator == null) throw EvenerException.argument("the operator " + name + " does nothing: it is null");
      held = Native.hold(operator);
      scratch.putLong(made + Layout.Operator.USER, held);
      scratch.putLong(made + Layout.Operator.INFER, Native.INFER);
      scratch.putLong(made + Layout.Operator.RUN, Native.RUN);
      scratch.putLong(made + Layout.Operator.RELEASE, Native.RELEASE);
      runtime.call((handle, error) -> Raw.runtimeRegisterOperator(handle, made, error));
      isRegistered = true;
    } finally {
      if (held != 0 && !isRegistered) Native.drop(held);
      scratch.release(mark);
    }
  }
}
