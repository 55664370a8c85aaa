#include "tests/work/shapes.h"

namespace evn::test {
namespace {

using Names = std::vector<std::string>;
using Longs = std::vector<std::int64_t>;

std::string name(const char* prefix, int i) { return prefix + std::to_string(i); }
// Names of a chain from "x" to "y" by way of a0, a1, ...
std::string before(int i) { return i == 0 ? "x" : name("a", i - 1); }
std::string after(int i, int n) { return i + 1 == n ? "y" : name("a", i); }
Names names(const char* prefix, int n) {
  Names all;
  for (int i = 0; i < n; ++i) all.push_back(name(prefix, i));
  return all;
}

OnnxWriter vector_model() {
  OnnxWriter w(21, 10);
  w.add_input("x", kF32, {"n"}).add_output("y");
  return w;
}
OnnxWriter matrix_model(std::int64_t columns = 4) {
  OnnxWriter w(21, 10);
  w.add_input("x", kF32, {"n", Dim(columns)}).add_output("y");
  return w;
}
OnnxWriter image_model() {
  OnnxWriter w(21, 10);
  w.add_input("x", kF32, {"n", 4, 3, 3}).add_output("y");
  return w;
}
OnnxWriter string_model(int n, int output = kStr) {
  OnnxWriter w(21, 10);
  w.import("ai.onnx.ml", 4);
  w.add_input("x", kStr, {Dim(n)}).add_output("y", output);
  return w;
}

SizedModel chain(const char* shown, std::vector<const char*> ops, bool reads_x = false) {
  return {shown, [ops, reads_x](int n) {
            OnnxWriter w = vector_model();
            for (int i = 0; i < n; ++i)
              w.add_node(ops[static_cast<std::size_t>(i) % ops.size()], reads_x ? Names{before(i), "x"} : Names{before(i)},
                         {after(i, n)});
            return w;
          }};
}

// Nodes that read x alone, and one that reads all of them.
SizedModel fan(const char* shown, const char* op, const char* join) {
  return {shown, [op, join](int n) {
            OnnxWriter w = vector_model();
            for (int i = 0; i < n; ++i) w.add_node(op, {"x"}, {name("a", i)});
            const bool concat = std::string(join) == "Concat";
            w.add_node(join, names("a", n), {"y"}, concat ? std::vector<Attr>{{"axis", 0}} : std::vector<Attr>{});
            return w;
          }};
}

// n groups of nodes that a pass looks for, one behind the other: `add` writes one from a value to another.
SizedModel groups(const char* shown, OnnxWriter (*model)(), void (*constants)(OnnxWriter&),
                  void (*add)(OnnxWriter&, int i, const std::string& from, const std::string& to)) {
  return {shown, [model, constants, add](int n) {
            OnnxWriter w = model();
            if (constants != nullptr) constants(w);
            for (int i = 0; i < n; ++i) add(w, i, before(i), after(i, n));
            return w;
          }};
}
OnnxWriter matrix_of_four() { return matrix_model(); }

Proto body(const std::vector<Proto>& nodes, const std::vector<Proto>& inputs, const std::vector<Proto>& outputs) {
  Proto g;
  for (const Proto& n : nodes) g.message(1, n);
  g.bytes(2, "body");
  for (const Proto& i : inputs) g.message(11, i);
  for (const Proto& o : outputs) g.message(12, o);
  return g;
}
Proto untyped(const std::string& value, int dtype = kF32) { return value_info_proto(value, dtype, {}, false); }
Proto scalar(const std::string& value, int dtype) { return value_info_proto(value, dtype, {}); }
Proto sequence_info(const std::string& value) {
  const Proto tensor = Proto().message(1, Proto().varint(1, kF32));
  return Proto().bytes(1, value).message(2, Proto().message(4, Proto().message(1, tensor)));
}
// A Loop of n iterations whose body changes a sequence.
OnnxWriter loop_over_sequence(int n, const Proto& change, bool starts_full) {
  OnnxWriter w = vector_model();
  w.add_initializer("n", {}, Longs{n});
  if (starts_full) {
    w.add_node("SequenceConstruct", Names(static_cast<std::size_t>(n) + 1, "x"), {"q0"});
  } else {
    w.add_node("SequenceEmpty", {}, {"q0"});
  }
  w.add_node("Loop", {"n", "", "q0"}, {"q"},
             {Attr::graph("body", body({node_proto("Identity", {"c"}, {"c2"}), change},
                                       {scalar("i", kI64), scalar("c", kBool), sequence_info("s")},
                                       {scalar("c2", kBool), sequence_info("s2")}))});
  w.add_node("ConcatFromSequence", {"q"}, {"y"}, {{"axis", 0}});
  return w;
}

Attr strings(const char* attribute, const Names& all) {
  Proto p;
  p.bytes(1, attribute);
  for (const std::string& s : all) p.bytes(9, s);
  return Attr(p.varint(20, 8));
}
Longs counted(int n) {
  Longs all;
  for (int i = 0; i < n; ++i) all.push_back(i);
  return all;
}

void add_graphs(std::vector<SizedModel>* all) {
  all->push_back(chain("chain", {"Tanh"}));
  all->push_back(chain("chain in place", {"Relu", "Exp"}));
  all->push_back(chain("identities", {"Identity", "Tanh"}));
  all->push_back(chain("dropouts", {"Dropout", "Tanh"}));
  all->push_back(chain("chain that reads x", {"Add", "Mul"}, true));
  all->push_back(chain("comparisons of kinds", {"Max", "Min", "Sum", "Mean"}, true));
  all->push_back(fan("fan into Concat", "Tanh", "Concat"));
  all->push_back(fan("fan into Sum", "Tanh", "Sum"));
  all->push_back(fan("fan into Max", "Sin", "Max"));
  all->push_back({"every second value stays", [](int n) {
                    OnnxWriter w = vector_model();
                    Names kept;
                    for (int i = 0; i < n; ++i) {
                      w.add_node(i % 2 != 0 ? "Add" : "Mul", {before(i), "x"}, {name("a", i)});
                      if (i % 2 == 0) kept.push_back(name("a", i));
                    }
                    w.add_node("Sum", kept, {"y"});
                    return w;
                  }});
  all->push_back({"last in, first out", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) w.add_node(i % 2 != 0 ? "Tanh" : "Sin", {"x"}, {name("a", i)});
                    for (int i = 0; i < n; ++i)
                      w.add_node("Add", {i == 0 ? "x" : name("b", i - 1), name("a", n - 1 - i)}, {i + 1 == n ? "y" : name("b", i)});
                    return w;
                  }});
  all->push_back({"values of many sizes", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {1}).add_output("y");
                    for (int i = 0; i < n; ++i) {
                      w.add_initializer(name("s", i), {1}, Longs{1 + i * 37 % 101});
                      w.add_node("Expand", {"x", name("s", i)}, {name("e", i)}).add_node("Tanh", {name("e", i)}, {name("a", i)});
                    }
                    w.add_node("Concat", names("a", n), {"y"}, {{"axis", 0}});
                    return w;
                  }});
  all->push_back({"outputs", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {"n"});
                    for (int i = 0; i < n; ++i) w.add_node("Tanh", {"x"}, {name("a", i)}).add_output(name("a", i));
                    return w;
                  }});
  all->push_back({"inputs", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 1; i < n; ++i) w.add_input(name("x", i), kF32, {"n"});
                    Names reads = names("x", n);
                    reads[0] = "x";
                    w.add_node("Sum", reads, {"y"});
                    return w;
                  }});
  all->push_back({"initializers", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_initializer(name("c", i), {}, std::vector<float>{static_cast<float>(i)});
                      w.add_node("Add", {before(i), name("c", i)}, {after(i, n)});
                    }
                    return w;
                  }});
  all->push_back({"initializers that nobody reads", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) w.add_initializer(name("c", i), {}, std::vector<float>{1});
                    w.add_node("Relu", {"x"}, {"y"});
                    return w;
                  }});
  all->push_back({"dead nodes", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) w.add_node("Sin", {before(i)}, {name("a", i)});
                    w.add_node("Tanh", {"x"}, {"y"});
                    return w;
                  }});
  all->push_back({"Constant nodes", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_node("Constant", {}, {name("c", i)}, {{"value_float", 1.5f}});
                      w.add_node("Mul", {before(i), name("c", i)}, {after(i, n)});
                    }
                    return w;
                  }});
  all->push_back({"folded chain", [](int n) {
                    OnnxWriter w = vector_model();
                    w.add_initializer("c", {1}, std::vector<float>{0.5f});
                    for (int i = 0; i < n; ++i) w.add_node("Sin", {i == 0 ? "c" : name("b", i - 1)}, {name("b", i)});
                    w.add_node("Add", {"x", name("b", n - 1)}, {"y"});
                    return w;
                  }});
  all->push_back({"folded fan", [](int n) {
                    OnnxWriter w = vector_model();
                    w.add_initializer("c", {1}, std::vector<float>{0.5f});
                    for (int i = 0; i < n; ++i) w.add_node("Sin", {"c"}, {name("b", i)});
                    Names reads = names("b", n);
                    reads.push_back("x");
                    w.add_node("Sum", reads, {"y"});
                    return w;
                  }});
  all->push_back({"shape arithmetic", [](int n) {
                    OnnxWriter w = vector_model();
                    w.add_initializer("one", {1}, Longs{1}).add_node("Shape", {"x"}, {"s0"});
                    for (int i = 0; i < n; ++i) w.add_node("Add", {name("s", i), "one"}, {name("s", i + 1)});
                    w.add_node("ConstantOfShape", {name("s", n)}, {"y"});
                    return w;
                  }});
  all->push_back({"reshapes by computed shapes", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_node("Shape", {before(i)}, {name("s", i)}).add_node("Tanh", {before(i)}, {name("t", i)});
                      w.add_node("Reshape", {name("t", i), name("s", i)}, {after(i, n)});
                    }
                    return w;
                  }});
  all->push_back({"Split without copies", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {Dim(n), 16}).add_output("y").add_node("Tanh", {"x"}, {"t"});
                    w.add_node("Split", {"t"}, names("a", n), {{"axis", 0}, {"num_outputs", n}});
                    Names turned = names("a", n);
                    w.add_node("Concat", Names(turned.rbegin(), turned.rend()), {"y"}, {{"axis", 0}});
                    return w;
                  }});
  all->push_back({"Split with copies", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {2, Dim(n)}).add_output("y");
                    w.add_node("Split", {"x"}, names("a", n), {{"axis", 1}, {"num_outputs", n}});
                    for (int i = 0; i < n; ++i) w.add_node("Tanh", {name("a", i)}, {name("b", i)});
                    w.add_node("Concat", names("b", n), {"y"}, {{"axis", 0}});
                    return w;
                  }});
  all->push_back({"Split into outputs", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {2, Dim(n)});
                    w.add_node("Split", {"x"}, names("a", n), {{"axis", 1}, {"num_outputs", n}});
                    for (int i = 0; i < n; ++i) w.add_output(name("a", i));
                    return w;
                  }});
  all->push_back({"Concat of one value", [](int n) {
                    OnnxWriter w = vector_model();
                    return w.add_node("Concat", Names(static_cast<std::size_t>(n), "x"), {"y"}, {{"axis", 0}});
                  }});
  all->push_back({"slices", [](int n) {
                    OnnxWriter w = matrix_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_initializer(name("i", i), {1}, Longs{i}).add_initializer(name("j", i), {1}, Longs{i + 1});
                      w.add_node("Slice", {"x", name("i", i), name("j", i)}, {name("a", i)});
                    }
                    return w.add_node("Concat", names("a", n), {"y"}, {{"axis", 0}});
                  }});
  all->push_back({"nodes of one name", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) w.add_node("Tanh", {before(i)}, {after(i, n)}, {}, "same");
                    return w;
                  }});
  all->push_back({"metadata and declared values", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_node("Tanh", {before(i)}, {after(i, n)}).add_value_info(name("a", i), kF32, {"n"});
                      w.model().message(14, Proto().bytes(1, name("key", i)).bytes(2, "value"));
                    }
                    return w;
                  }});
  all->push_back({"values declared as of two types", [](int n) {
                    OnnxWriter w = vector_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_node("Tanh", {before(i)}, {after(i, n)});
                      w.add_value_info(name("a", i), kF32, {"n"}).add_value_info(name("a", i), kF64, {"n"});
                    }
                    return w;
                  }});
}

void add_nested(std::vector<SizedModel>* all) {
  all->push_back(
      {"Ifs", [](int n) {
         OnnxWriter w = vector_model();
         w.add_node("ReduceMax", {"x"}, {"m"}, {{"keepdims", 0}}).add_node("Cast", {"m"}, {"b"}, {{"to", kBool}});
         for (int i = 0; i < n; ++i)
           w.add_node(
               "If", {"b"}, {after(i, n)},
               {Attr::graph("then_branch", body({node_proto("Tanh", {before(i)}, {name("t", i)})}, {}, {untyped(name("t", i))})),
                Attr::graph("else_branch", body({node_proto("Sin", {before(i)}, {name("e", i)})}, {}, {untyped(name("e", i))}))});
         return w;
       }});
  all->push_back({"functions", [](int n) {
                    OnnxWriter w = vector_model();
                    w.import("f", 1);
                    for (int i = 0; i < n; ++i) {
                      w.add_function(FunctionWriter(name("f", i), {"a"}, {"b"}, "f").import("", 21).add_node("Tanh", {"a"}, {"b"}));
                      w.add_node(name("f", i), {before(i)}, {after(i, n)}, {}, "", "f");
                    }
                    return w;
                  }});
  all->push_back(
      {"calls of a function", [](int n) {
         OnnxWriter w = vector_model();
         w.import("f", 1);
         w.add_function(
             FunctionWriter("f", {"a"}, {"b"}, "f").import("", 21).add_node("Tanh", {"a"}, {"c"}).add_node("Sin", {"c"}, {"b"}));
         for (int i = 0; i < n; ++i) w.add_node("f", {before(i)}, {after(i, n)}, {}, "", "f");
         return w;
       }});
  all->push_back({"a long function", [](int n) {
                    OnnxWriter w = vector_model();
                    w.import("f", 1);
                    FunctionWriter f("f", {"x"}, {"y"}, "f");
                    f.import("", 21);
                    for (int i = 0; i < n; ++i) f.add_node("Tanh", {before(i)}, {after(i, n)});
                    return w.add_function(f).add_node("f", {"x"}, {"y"}, {}, "", "f");
                  }});
  all->push_back({"a long body of a Loop", [](int n) {
                    OnnxWriter w = vector_model();
                    w.add_initializer("n", {}, Longs{2});
                    std::vector<Proto> nodes = {node_proto("Identity", {"c"}, {"c2"})};
                    for (int i = 0; i < n; ++i)
                      nodes.push_back(node_proto("Tanh", {i == 0 ? "v" : name("t", i - 1)}, {i + 1 == n ? "v2" : name("t", i)}));
                    return w.add_node("Loop", {"n", "", "x"}, {"y"},
                                      {Attr::graph("body", body(nodes, {scalar("i", kI64), scalar("c", kBool), untyped("v")},
                                                                {scalar("c2", kBool), untyped("v2")}))});
                  }});
  all->push_back({"captures of a body", [](int n) {
                    OnnxWriter w = vector_model();
                    w.add_initializer("n", {}, Longs{2});
                    Names read = {"v"};
                    for (int i = 0; i < n; ++i) w.add_node("Tanh", {"x"}, {read.emplace_back(name("a", i))});
                    return w.add_node(
                        "Loop", {"n", "", "x"}, {"y"},
                        {Attr::graph("body", body({node_proto("Identity", {"c"}, {"c2"}), node_proto("Sum", read, {"v2"})},
                                                  {scalar("i", kI64), scalar("c", kBool), untyped("v")},
                                                  {scalar("c2", kBool), untyped("v2")}))});
                  }});
  all->push_back({"iterations of a Loop", [](int n) {
                    OnnxWriter w = vector_model();
                    w.add_initializer("n", {}, Longs{n});
                    return w.add_node(
                        "Loop", {"n", "", "x"}, {"v", "y"},
                        {Attr::graph("body", body({node_proto("Identity", {"c"}, {"c2"}), node_proto("Tanh", {"v"}, {"v2"}),
                                                   node_proto("Identity", {"v2"}, {"s"})},
                                                  {scalar("i", kI64), scalar("c", kBool), untyped("v")},
                                                  {scalar("c2", kBool), untyped("v2"), untyped("s")}))});
                  }});
  all->push_back({"insertions at the end", [](int n) {
                    return loop_over_sequence(n, node_proto("SequenceInsert", {"s", "x"}, {"s2"}), false);
                  }});
  all->push_back({"insertions by number", [](int n) {
                    return loop_over_sequence(n, node_proto("SequenceInsert", {"s", "x", "i"}, {"s2"}), false);
                  }});
  all->push_back({"erasures", [](int n) { return loop_over_sequence(n, node_proto("SequenceErase", {"s"}, {"s2"}), true); }});
  all->push_back({"SequenceConstruct", [](int n) {
                    OnnxWriter w = vector_model();
                    return w.add_node("SequenceConstruct", Names(static_cast<std::size_t>(n), "x"), {"q"})
                        .add_node("ConcatFromSequence", {"q"}, {"y"}, {{"axis", 0}});
                  }});
  all->push_back({"SplitToSequence", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {Dim(n), 2}).add_output("y");
                    return w.add_node("SplitToSequence", {"x"}, {"q"}, {{"axis", 0}})
                        .add_node("ConcatFromSequence", {"q"}, {"y"}, {{"axis", 0}});
                  }});
  all->push_back({"SequenceMap", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {Dim(n), 2}).add_output("y");
                    w.add_node("SplitToSequence", {"x"}, {"q"}, {{"axis", 0}});
                    w.add_node("SequenceMap", {"q"}, {"r"},
                               {Attr::graph("body", body({node_proto("Tanh", {"e"}, {"o"})}, {untyped("e")}, {untyped("o")}))});
                    return w.add_node("ConcatFromSequence", {"r"}, {"y"}, {{"axis", 0}});
                  }});
}

void add_patterns(std::vector<SizedModel>* all) {
  all->push_back(
      groups("products", matrix_of_four, nullptr, [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_initializer(name("w", i), {4, 4}, std::vector<float>(16, 0.25f)).add_node("MatMul", {from, name("w", i)}, {to});
      }));
  all->push_back(groups(
      "Einsums", matrix_of_four,
      [](OnnxWriter& w) {
        w.add_initializer("w", {4, 4}, std::vector<float>(16, 0.25f));
      },
      [](OnnxWriter& w, int, const std::string& from, const std::string& to) {
        w.add_node("Einsum", {from, "w"}, {to}, {{"equation", "bi,io->bo"}});
      }));
  all->push_back(groups("convolutions with sums", image_model, nullptr,
                        [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
                          w.add_initializer(name("w", i), {4, 4, 1, 1}, std::vector<float>(16, 0.25f));
                          w.add_node("Conv", {from, name("w", i)}, {name("c", i)}, {{"kernel_shape", Longs{1, 1}}});
                          w.add_node("Add", {name("c", i), from}, {name("s", i)}).add_node("Relu", {name("s", i)}, {to});
                        }));
  all->push_back(groups(
      "normalized convolutions", image_model,
      [](OnnxWriter& w) {
        w.add_initializer("one", {4}, std::vector<float>(4, 1)).add_initializer("zero", {4}, std::vector<float>(4, 0));
      },
      [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_initializer(name("w", i), {4, 4, 1, 1}, std::vector<float>(16, 0.25f));
        w.add_node("Conv", {from, name("w", i)}, {name("c", i)}, {{"kernel_shape", Longs{1, 1}}});
        w.add_node("BatchNormalization", {name("c", i), "one", "zero", "zero", "one"}, {to});
      }));
  all->push_back({"convolutions side by side", [](int n) {
                    OnnxWriter w = image_model();
                    for (int i = 0; i < n; ++i) {
                      w.add_initializer(name("w", i), {4, 4, 1, 1}, std::vector<float>(16, 0.25f));
                      w.add_node("Conv", {"x", name("w", i)}, {name("a", i)}, {{"kernel_shape", Longs{1, 1}}});
                    }
                    return w.add_node("Concat", names("a", n), {"y"}, {{"axis", 1}});
                  }});
  all->push_back(groups(
      "quantized", vector_model,
      [](OnnxWriter& w) {
        w.add_initializer("s", {}, std::vector<float>{0.1f}).add_initializer("z", {}, std::vector<std::uint8_t>{3});
      },
      [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_node("QuantizeLinear", {from, "s", "z"}, {name("q", i)})
            .add_node("DequantizeLinear", {name("q", i), "s", "z"}, {name("d", i)});
        w.add_node("Relu", {name("d", i)}, {to});
      }));
  all->push_back(groups(
      "GELU in parts", vector_model,
      [](OnnxWriter& w) {
        w.add_initializer("r", {}, std::vector<float>{1.4142135f}).add_initializer("one", {}, std::vector<float>{1});
        w.add_initializer("half", {}, std::vector<float>{0.5f});
      },
      [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_node("Div", {from, "r"}, {name("d", i)}).add_node("Erf", {name("d", i)}, {name("e", i)});
        w.add_node("Add", {name("e", i), "one"}, {name("o", i)}).add_node("Mul", {from, name("o", i)}, {name("m", i)});
        w.add_node("Mul", {name("m", i), "half"}, {to});
      }));
  all->push_back(groups(
      "layer norm in parts", matrix_of_four,
      [](OnnxWriter& w) {
        w.add_initializer("axes", {1}, Longs{-1})
            .add_initializer("two", {}, std::vector<float>{2})
            .add_initializer("eps", {}, std::vector<float>{1e-5f});
      },
      [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_node("ReduceMean", {from, "axes"}, {name("m", i)}).add_node("Sub", {from, name("m", i)}, {name("d", i)});
        w.add_node("Pow", {name("d", i), "two"}, {name("p", i)}).add_node("ReduceMean", {name("p", i), "axes"}, {name("v", i)});
        w.add_node("Add", {name("v", i), "eps"}, {name("e", i)}).add_node("Sqrt", {name("e", i)}, {name("r", i)});
        w.add_node("Div", {name("d", i), name("r", i)}, {to});
      }));
  all->push_back(groups(
      "attention in parts",
      [] {
        OnnxWriter w(21, 10);
        w.add_input("x", kF32, {"n", 3, 4}).add_output("y");
        return w;
      },
      [](OnnxWriter& w) { w.add_initializer("c", {}, std::vector<float>{0.5f}); },
      [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_node("Transpose", {from}, {name("k", i)}, {{"perm", Longs{0, 2, 1}}})
            .add_node("MatMul", {from, name("k", i)}, {name("s", i)});
        w.add_node("Mul", {name("s", i), "c"}, {name("m", i)}).add_node("Softmax", {name("m", i)}, {name("p", i)}, {{"axis", -1}});
        w.add_node("MatMul", {name("p", i), from}, {to});
      }));
  all->push_back(
      groups("transposes", matrix_of_four, nullptr, [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
        w.add_node("Transpose", {from}, {name("t", i)}, {{"perm", Longs{1, 0}}}).add_node("Tanh", {name("t", i)}, {to});
      }));
  all->push_back(groups("swish", vector_model, nullptr, [](OnnxWriter& w, int i, const std::string& from, const std::string& to) {
    w.add_node("Sigmoid", {from}, {name("s", i)}).add_node("Mul", {from, name("s", i)}, {to});
  }));
}

void add_operators(std::vector<SizedModel>* all) {
  all->push_back({"stop words", [](int n) {
                    Names words;
                    for (int i = 0; i < n; ++i) words.push_back(name("other", i));
                    return string_model(n).add_node("StringNormalizer", {"x"}, {"y"},
                                                    {strings("stopwords", words), {"case_change_action", "LOWER"}});
                  }});
  all->push_back({"StringSplit", [](int n) {
                    return string_model(n).add_node("StringSplit", {"x"}, {"y", "k"}, {{"delimiter", "o"}});
                  }});
  all->push_back({"StringConcat", [](int n) { return string_model(n).add_node("StringConcat", {"x", "x"}, {"y"}); }});
  all->push_back({"RegexFullMatch", [](int n) {
                    return string_model(n, kBool).add_node("RegexFullMatch", {"x"}, {"y"}, {{"pattern", "w.*d[0-9]+"}});
                  }});
  all->push_back({"LabelEncoder", [](int n) {
                    return string_model(n, kI64).add_node(
                        "LabelEncoder", {"x"}, {"y"}, {strings("keys_strings", names("word", n)), {"values_int64s", counted(n)}},
                        "", "ai.onnx.ml");
                  }});
  all->push_back({"CategoryMapper", [](int n) {
                    return string_model(n, kI64).add_node("CategoryMapper", {"x"}, {"y"},
                                                          {strings("cats_strings", names("word", n)), {"cats_int64s", counted(n)}},
                                                          "", "ai.onnx.ml");
                  }});
  all->push_back({"TfIdfVectorizer", [](int n) {
                    return string_model(n, kF32).add_node("TfIdfVectorizer", {"x"}, {"y"},
                                                          {{"max_gram_length", 1},
                                                           {"min_gram_length", 1},
                                                           {"max_skip_count", 0},
                                                           {"mode", "TF"},
                                                           {"ngram_counts", Longs{0}},
                                                           {"ngram_indexes", counted(n)},
                                                           strings("pool_strings", names("word", n))});
                  }});
  all->push_back({"Unique", [](int n) {
                    OnnxWriter w(21, 10);
                    return w.add_input("x", kF32, {Dim(n)}).add_output("y").add_node("Unique", {"x"}, {"y"});
                  }});
  all->push_back({"Unique of columns", [](int n) {
                    OnnxWriter w(21, 10);
                    return w.add_input("x", kF32, {2, Dim(n)}).add_output("y").add_node("Unique", {"x"}, {"y"}, {{"axis", 1}});
                  }});
  all->push_back({"TopK", [](int n) {
                    OnnxWriter w(21, 10);
                    w.add_input("x", kF32, {Dim(n)}).add_output("y").add_initializer("k", {1}, Longs{n});
                    return w.add_node("TopK", {"x", "k"}, {"y", "i"});
                  }});
}

}  // namespace

const std::vector<SizedModel>& sized_models() {
  static const std::vector<SizedModel> all = [] {
    std::vector<SizedModel> models;
    add_graphs(&models);
    add_nested(&models);
    add_patterns(&models);
    add_operators(&models);
    return models;
  }();
  return all;
}

}  // namespace evn::test
