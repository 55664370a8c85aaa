import evener.Format;
import evener.Model;
import evener.Request;
import evener.RunOptions;
import evener.Runtime;
import evener.RuntimeOptions;
import evener.Session;
import evener.Tensor;
import evener.ValueInfo;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs a model on zeros, once by itself and then as several requests, and says where its nodes run.
 *
 * <p>usage: java -cp evener.jar Classify.java MODEL.onnx [CONFIG.yaml [SIZE ...]]
 */
public class Classify {
  public static void main(String[] arguments) {
    if (arguments.length < 1) throw new IllegalArgumentException("usage: Classify MODEL.onnx [CONFIG.yaml [SIZE ...]]");
    RuntimeOptions options = new RuntimeOptions();
    if (arguments.length > 1 && !arguments[1].isEmpty()) options.config(Path.of(arguments[1]));
    try (Runtime runtime = new Runtime(options);
        Model model = runtime.load(Path.of(arguments[0]));
        Session session = new Session(runtime, model)) {
      // Dims that the model leaves open have the sizes that are given, in their order, else 1 on axis 0 and 128 elsewhere.
      int next = 2;
      List<ValueInfo> infos = session.inputs();
      Tensor[] inputs = new Tensor[infos.size()];
      for (int i = 0; i < inputs.length; i++) {
        if (!infos.get(i).hasRank()) throw new IllegalArgumentException("input " + infos.get(i).name() + " has no rank");
        long[] dims = infos.get(i).dims();
        for (int axis = 0; axis < dims.length; axis++) {
          if (dims[axis] == -1) dims[axis] = next < arguments.length ? Long.parseLong(arguments[next++]) : axis == 0 ? 1 : 128;
        }
        inputs[i] = runtime.device("cpu").zeros(infos.get(i).dtype(), dims);
      }

      Tensor[] outputs = session.run(inputs);
      for (ValueInfo output : session.outputs()) {
        System.out.println(output.name() + ": " + outputs[session.findOutput(output.name())].info());
      }

      // Requests are futures; what is no more needed is closed, or left to the collector.
      RunOptions soon = new RunOptions().timeout(Duration.ofSeconds(30));
      List<Request<Tensor>> requests = new ArrayList<>();
      for (int i = 0; i < 4; i++) requests.add(session.submit(soon, inputs));
      for (Request<Tensor> request : requests) {
        for (Tensor output : request.join()) output.close();
      }
      System.out.println(session.explain(Format.TEXT));
      for (Tensor tensor : inputs) tensor.close();
      for (Tensor tensor : outputs) tensor.close();
    }
  }
}
