# Built where nothing but crates.io is needed: queries are checked against the committed .sqlx.
FROM rust:1.95-bookworm AS build
WORKDIR /build
ENV SQLX_OFFLINE=true

# The dependencies alone, behind empty stand-ins for our own code: this layer is built again only when
# Cargo.toml or Cargo.lock changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
    && touch src/lib.rs \
    && echo 'fn main() {}' > src/main.rs \
    && sed -i '/^\[\[bench\]\]/,/^$/d' Cargo.toml \
    && cargo build --release --locked --bin payonce

COPY . .
# Copied files keep their age; newer than the stand-ins they must be.
RUN touch src/lib.rs src/main.rs && cargo build --release --locked --bin payonce

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --user-group --no-create-home --shell /usr/sbin/nologin payonce
COPY --from=build /build/target/release/payonce /usr/local/bin/payonce
USER payonce
ENV BIND_ADDR=0.0.0.0:8080
EXPOSE 8080
# Asks whether the process runs, not whether its stores do: a restart cures no database.
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /livez HTTP/1.0\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
ENTRYPOINT ["payonce"]
CMD ["serve"]
