#!/bin/sh
# A standby of the server named first: a copy of it is made at the first start, and followed.
set -eu
PGPASSWORD="$(cat "$POSTGRES_PASSWORD_FILE")"
export PGPASSWORD
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  pg_basebackup --dbname="host=$1 user=$POSTGRES_USER" --pgdata="$PGDATA" \
    --write-recovery-conf --checkpoint=fast
fi
# Asks twice a second for a primary that is gone: commits wait meanwhile.
# Promoted, it waits for no standby, whatever the copied settings of its primary say.
exec postgres -c cluster_name=standby -c wal_retrieve_retry_interval=500ms \
  -c synchronous_standby_names=
