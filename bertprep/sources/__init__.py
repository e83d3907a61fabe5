"""The sources of text and task data: downloads, local files, dumps and the sample corpus."""
