package evener;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class OcrTest {
  /** Gives the text by the greedy rule of CTC: the largest class of each step, 0 is the blank, repeated ones count once. */
  private static String decode(Tensor output, List<String> alphabet) {
    long[] dims = output.info().dims();
    assertEquals(alphabet.size(), dims[dims.length - 1]);
    FloatBuffer probabilities = output.buffer().asFloatBuffer();
    StringBuilder text = new StringBuilder();
    int last = 0;
    for (int step = 0; step < probabilities.capacity(); step += alphabet.size()) {
      int best = 0;
      for (int i = 0; i < alphabet.size(); i++) {
        if (probabilities.get(step + i) > probabilities.get(step + best)) best = i;
      }
      if (best != 0 && best != last) text.append(alphabet.get(best));
      last = best;
    }
    return text.toString();
  }

  /** A real recognizer reads lines of a real page as Python's program does: EVENER_OCR is a folder that make_ocr_lines.py wrote. */
  @Test
  void theRecognizerReadsWhatPythonReads() throws Exception {
    Path file = Tiny.needed("EVENER_OCR", "texts.txt");
    try (Runtime runtime = Tiny.runtime();
        Model model = runtime.load(Tiny.needed("EVENER_MODELS", "ch_PP-OCRv4_rec_infer.onnx"));
        Session session = new Session(runtime, model)) {
      List<String> alphabet = new ArrayList<>(List.of(""));
      alphabet.addAll(List.of(model.metadata("character").orElseThrow().split("\n", -1)));
      alphabet.add(" ");
      List<String> texts = Files.readAllLines(file);
      assertTrue(texts.size() >= 2);
      List<Tensor> lines = new ArrayList<>();
      for (int i = 0; i < texts.size(); i++) {
        byte[] bytes = Files.readAllBytes(file.resolveSibling("line" + i + ".f32"));
        ByteBuffer data = ByteBuffer.allocateDirect(bytes.length).order(ByteOrder.nativeOrder()).put(bytes).flip();
        lines.add(Tensor.wrap(runtime, data, DType.FLOAT32, 1, 3, 48, bytes.length / (4 * 3 * 48)));
      }
      for (int i = 0; i < texts.size(); i++) {
        assertTrue(texts.get(i).length() > 2);
        assertEquals(texts.get(i), decode(session.run(lines.get(i))[0], alphabet));
      }
      // And so do 16 requests at a time.
      List<Request<Tensor>> requests = new ArrayList<>();
      RunOptions options = new RunOptions().deadlineAfter(Duration.ofMinutes(10));
      for (int i = 0; i < 16; i++) requests.add(session.submit(options, lines.get(i % lines.size())));
      for (int i = 0; i < 16; i++) {
        assertEquals(texts.get(i % texts.size()), decode(requests.get(i).get(10, TimeUnit.MINUTES)[0], alphabet));
      }
    }
  }
}
