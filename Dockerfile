# bertprep and its trainer on CPUs, with the versions that the tests run with. What follows the image's name are arguments of
# bertprep; none prints its help. --entrypoint bash opens a shell.
#
#     docker build -t bertprep .
#     docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/data" bertprep create --seq 128 --pred 20
#     docker run --rm -u "$(id -u):$(id -g)" -v "$PWD:/data" bertprep train --model tiny --out data/models/tiny
FROM python:3.12-slim
WORKDIR /opt/bertprep
COPY pyproject.toml README.md LICENSE ./
COPY constraints constraints
COPY bertprep bertprep
COPY trainer trainer
RUN pip install --no-cache-dir -c constraints/main.txt hatchling \
 && pip install --no-cache-dir -c constraints/main.txt --no-build-isolation ".[tensorflow]"
# Compiled kernels are kept beside the data, since they are made for the processor that runs them.
ENV BERTPREP_CACHE=/data/.cache/bertprep
WORKDIR /data
ENTRYPOINT ["bertprep"]
