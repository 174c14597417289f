#!/bin/sh
# Run once, when the primary's files have been made: a standby may copy them and follow.
set -eu
echo "host replication $POSTGRES_USER all scram-sha-256" >>"$PGDATA/pg_hba.conf"
# The log that a standby still needs after a pause of its own, or of the network.
echo "wal_keep_size = 1GB" >>"$PGDATA/postgresql.conf"
