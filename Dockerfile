# syntax=docker/dockerfile:1

# One image with one program, of which every service is a command. All stages are Debian 12, so
# that what is built against its glibc runs on it. The simulated API server, for docker-compose.yml, is an
# image of its own: `--target simapi`.

FROM rust:1.95-slim-bookworm AS build
# jemalloc is built with make; everything else needs only the compiler that is there.
RUN apt-get update \
    && apt-get install --no-install-recommends --yes make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The registry and the target folder outlive the build, so the program is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package anteroom \
    && mkdir /out \
    && cp target/release/anteroom /out/ \
    && for login in server system operator watcher replica webhook reporter; do mkdir -p /keys/$login; done

FROM build AS build-simapi
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package anteroom-simapi \
    && cp target/release/anteroom-simapi /

FROM gcr.io/distroless/cc-debian12:nonroot AS simapi
COPY --from=build-simapi /anteroom-simapi /usr/local/bin/
USER 65532:65532
CMD ["/usr/local/bin/anteroom-simapi"]

# glibc, libgcc and the system's certificates; no shell, no package manager; user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /out/ /usr/local/bin/
# Where docker-compose.yml mounts volumes for keys: a new volume takes over whose folder it is.
COPY --from=build --chown=65532:65532 /keys/ /keys/
USER 65532:65532
CMD ["/usr/local/bin/anteroom", "--help"]
