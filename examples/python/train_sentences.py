#!/usr/bin/env python3
"""Gives MiniLM, which knows what sentences mean, a head that tells whether a sentence of a review is in favour.

usage: train_sentences.py [--data FOLDER] [--epochs 6] [--sentences 4000] [--also GLOB] [--threads 2] [-o FOLDER]

The sentences are of reviews of products and films, rated from -4 to 4 by twenty people each (Hutto and Gilbert, 2014); those rated within -1 .. 1 are left out.
Four fifths are learned from. The head alone learns, and with --also whatever initializers the glob names ("*layer.2*": the last layer's normalizations and biases).
FOLDER gets sentences.onnx and sentences.svg. `scripts/fetch_models.py minilm reviews` fetches the network, its vocabulary and the sentences.
"""
import argparse
import pathlib
import tarfile

import curves
import evener
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from wordpiece import WordPiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRIED = ("It broke after two days, and nobody answers my mails.", "I would buy this camera again at once.", "A film that I have already forgotten.")


def sentences(path, most):
    """Sentences, and whether they are in favour."""
    found = []
    with tarfile.open(path) as archive:
        for of in ("amazonReviewSnippets", "movieReviewSnippets"):
            for line in archive.extractfile(f"hutto_ICWSM_2014/{of}_GroundTruth.txt").read().decode("latin-1").splitlines():
                _, rating, text = line.split("\t", 2)
                if abs(float(rating)) > 1:
                    found.append((text, int(float(rating) > 0)))
    order = np.random.default_rng(0).permutation(len(found))[:most]
    return [found[at][0] for at in order], np.array([found[at][1] for at in order])


def with_head(path, seed=0):
    """The network with a classifier of two classes behind its meaning of a sentence."""
    model = onnx.load(path)
    graph = model.graph
    random = np.random.default_rng(seed)
    graph.initializer.extend([numpy_helper.from_array((random.standard_normal((2, 384)) * 0.05).astype(np.float32), "head.weight"),
                              numpy_helper.from_array(np.zeros(2, np.float32), "head.bias")])
    graph.node.append(helper.make_node("Gemm", ["461", "head.weight", "head.bias"], ["logits"], name="head", transB=1))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch_size", 2]))
    return model.SerializeToString()


def batches(words, texts, labels, order, size=32):
    """Batches of sentences that are about as long as each other."""
    for at in range(0, len(order), size):
        chosen = order[at:at + size]
        yield words.batch([texts[i] for i in chosen]), labels[chosen]


def accuracy(trainer, words, texts, labels, order):
    parts = [trainer.evaluate(inputs, of) for inputs, of in batches(words, texts, labels, order, 64)]
    return sum(part.correct for part in parts) / sum(part.count for part in parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "build/models")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--sentences", type=int, default=4000)
    parser.add_argument("--also")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=pathlib.Path, default=pathlib.Path("."))
    options = parser.parse_args()
    words = WordPiece(options.data / "bert_vocab.txt")
    texts, labels = sentences(options.data / "hutto_ICWSM_2014.tar.gz", options.sentences)
    held, learned = np.arange(len(texts))[::5], np.setdiff1d(np.arange(len(texts)), np.arange(len(texts))[::5])
    held = held[np.argsort([len(texts[at]) for at in held], kind="stable")]  # of one length together, which saves filling up
    random = np.random.default_rng(1)
    steps = options.epochs * -(-len(learned) // 32)
    with evener.Runtime(threads=options.threads) as runtime:
        trainer = evener.Trainer(runtime, with_head(options.data / "paraphrase_minilm_l3.onnx"), trainable=["head.*"] + ([options.also] if options.also else []),
                                 groups=[([options.also], 0.05, 0.0)] if options.also else (), optimizer="adamw", learning_rate=5e-3, weight_decay=0.01, schedule="cosine",
                                 schedule_steps=steps, warmup_steps=20)
        before, losses, rates, accuracies = accuracy(trainer, words, texts, labels, held), [], [], []
        for epoch in range(options.epochs):
            for inputs, of in batches(words, texts, labels, random.permutation(learned)):
                step = trainer.step(inputs, of)
                losses.append(step.loss)
                rates.append(step.learning_rate)
            accuracies.append(accuracy(trainer, words, texts, labels, held))
            print(f"epoch {epoch + 1}: loss {np.mean(losses[-50:]):.3f}, {accuracies[-1]:.1%} of sentences that it has not seen", flush=True)
        trainer.finish(options.output / "sentences.onnx")
        logits = runtime.session(options.output / "sentences.onnx").run(words.batch(TRIED))["logits"]
    for text, row in zip(TRIED, logits):
        print(f"{1 / (1 + np.exp(row[0] - row[1])):.0%} in favour: {text}")
    most = max(labels[held].mean(), 1 - labels[held].mean())
    print(f"accuracy: {before:.1%} before, {accuracies[-1]:.1%} after {len(losses)} steps, of {len(held)} sentences, {most:.1%} of which are of one kind")
    curves.draw(options.output / "sentences.svg", loss=losses, learning_rate=rates, accuracy=accuracies)


if __name__ == "__main__":
    main()
