"""The daemon that starts Spark's Python workers faster: ``spark.python.daemon.module=spark_eos.worker_daemon``.

Spark runs this module as a program. `spark_eos.datasource.worker_daemon` has what it does.
"""

from spark_eos.datasource.worker_daemon import main

if __name__ == "__main__":
    main()
