"""Measure the costs of everything: these commands make the tables of docs/contribute/benchmarks.md.

python -m benchmarks data create convert --runs 7     # text, records, batches; all of them if none is named
python -m benchmarks encoders                         # batches for encoders next to other libraries
python -m benchmarks step --torch-python PYTHON       # a training step next to PyTorch, on a CPU or an accelerator
python -m benchmarks packing                          # training steps on records with and without --pack
python -m benchmarks losses                           # the losses of two engines, step by step
python -m benchmarks readme --google CLONE            # the figures and the terminal of README.md
python -m benchmarks wikitext                         # the prose that tools make of wikitext
python -m benchmarks example                          # the results of the complete job of docs/start/first-model.md
python -m benchmarks picture                          # the README's picture of an example
"""
