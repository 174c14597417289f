#!/bin/sh
# Run once, when the primary's files have been made: a standby may copy them and follow.
set -eu
echo "host replication $POSTGRES_USER all scram-sha-256" >>"$PGDATA/pg_hba.conf"
