"""Complete jobs to read and to copy from. Each is one command, run from an environment that has bertprep.

end_to_end/run            from the sample corpus to a model that answers questions
sentiment/run             real weights fine-tuned on real reviews of films
transformers_trainer.py   transformers' Trainer on records of bertprep's
mlperf.py                 MLPerf BERT's records and start checkpoint, with each published number next to the measured one
"""
