package evener;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** How a model is loaded. What is not set is as the configuration says. */
public final class ModelOptions {
  private Path externalDirectory;
  private List<String> allowedRoots = List.of();
  private boolean isMapped;

  /** Makes options that say nothing. */
  public ModelOptions() {}

  /**
   * Sets the folder of the external data of a model from memory.
   *
   * @param folder null: there is none
   * @return this
   */
  public ModelOptions externalDirectory(Path folder) {
    externalDirectory = folder;
    return this;
  }

  /**
   * Sets folders beneath which files of external data may lie that are reached through links.
   *
   * @param folders the roots
   * @return this
   */
  public ModelOptions allowedRoots(Path... folders) {
    List<String> made = new ArrayList<>();
    for (Path folder : folders) made.add(folder.toString());
    allowedRoots = made;
    return this;
  }

  /**
   * Uses large tensors where they lie in mapped files, which nobody truncates.
   *
   * @return this
   */
  public ModelOptions mapFiles() {
    isMapped = true;
    return this;
  }

  long write(Scratch scratch, Deadline deadline) {
    long options = scratch.allocate(Layout.ModelOptions.SIZE);
    Raw.modelOptionsInit(options, Layout.ModelOptions.SIZE);
    if (externalDirectory != null) scratch.putLong(options + Layout.ModelOptions.EXTERNAL_DIR, scratch.text(externalDirectory.toString()));
    scratch.putLong(options + Layout.ModelOptions.ALLOWED_ROOTS, scratch.texts(allowedRoots));
    scratch.putInt(options + Layout.ModelOptions.ALLOWED_ROOT_COUNT, allowedRoots.size());
    scratch.putInt(options + Layout.ModelOptions.FLAGS, isMapped ? Numbers.EVN_MODEL_MAP : 0);
    if (deadline != null) {
      scratch.putLong(options + Layout.ModelOptions.CANCEL, CancelToken.handleOf(deadline.token()));
      scratch.putLong(options + Layout.ModelOptions.DEADLINE_NS, deadline.nanoseconds());
    }
    return options;
  }
}
