# Piper on CPUs. The commands are those of the README; no test builds the image.
#   docker build -t piper . && docker run --rm piper piper check examples/moe.toml examples/dualpipe.piper
FROM debian:12
WORKDIR /piper
COPY . .
RUN apt-get update && apt-get install -y --no-install-recommends make ca-certificates && make build && rm -rf /var/lib/apt/lists/*
ENV PATH=/piper/build/release:$PATH
CMD ["piper", "--help"]
