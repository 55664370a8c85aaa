package evener;

/**
 * What a device is.
 *
 * @param kind by what it is driven
 * @param deviceClass what it says that it is
 * @param name as the configuration or {@link Runtime#device} names it
 * @param description the processor's or driver's own name of it
 * @param driver platform and driver version, or the chosen instruction set of the CPU
 * @param computeUnits threads of the CPU device; compute units of an OpenCL one
 * @param memoryBytes memory that it reports
 * @param largestAllocation bytes of the largest buffer that it can have
 * @param identity tells it apart from other devices of this machine, as long as hardware and drivers stay
 * @param hasFloat16 arithmetic of float16
 * @param hasBfloat16 products of bfloat16
 * @param hasInt8Dot products of bytes that are summed up
 * @param hasUnifiedMemory its memory is the host's
 * @param hasSubgroups work items that run in step share values
 * @param state whether it can be used now; {@link Device#condition} says why not
 * @param quarantines how often it was in quarantine so far
 */
public record DeviceInfo(
    DeviceKind kind,
    DeviceClass deviceClass,
    String name,
    String description,
    String driver,
    int computeUnits,
    long memoryBytes,
    long largestAllocation,
    String identity,
    boolean hasFloat16,
    boolean hasBfloat16,
    boolean hasInt8Dot,
    boolean hasUnifiedMemory,
    boolean hasSubgroups,
    DeviceState state,
    int quarantines) {}
