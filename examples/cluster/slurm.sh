#!/bin/bash
#SBATCH --job-name=privrl
#SBATCH --ntasks=100
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=8G
#SBATCH --time=02:00:00
set -euo pipefail
umask 077
export OMP_NUM_THREADS=1
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False
export DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False
export DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=False
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
tls=(--tls-ca-file ca.pem --tls-cert node.pem --tls-key node.pem)
address="tls://$(hostname -f):8786"

dask scheduler --protocol tls --port 8786 --no-dashboard "${tls[@]}" &
srun --ntasks="$((SLURM_NTASKS - 1))" dask worker "$address" --nthreads 1 --memory-limit 0 --no-dashboard "${tls[@]}" &
privrl fit stays/ --schema stays.toml --recipe dp-tdfp --epsilon 1 --delta 1e-9 --store study.db --out policy \
    --dask "$address" --dask-ca ca.pem --dask-cert node.pem
