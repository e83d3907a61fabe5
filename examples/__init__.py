"""Complete jobs to read and to copy from. Each is one command, run from an environment that has bertprep, or a notebook.

end_to_end/run            from the sample corpus to a model that answers questions
tagging/run               that model fine-tuned to tag words, with seqeval's scores next to the trainer's
sentiment/run             real weights fine-tuned on real reviews of films
first_hour.ipynb          a notebook: records from a sample text, what is in them, and rows for a newer encoder
transformers_trainer.py   transformers' Trainer on records of bertprep's
mlperf.py                 MLPerf BERT's records and start checkpoint, with each published number next to the measured one
"""
