"""evener-VERSION.jar: the Java package with its glue and the library, by Maven, which builds as bindings/java/pom.xml says. It may fetch plugins."""
import os
import shutil

from . import common

ABOUT = "the jar for Java 17, with the library for this build's platform"


def missing():
    return common.without("mvn", "javac")


def make(packaging):
    target = packaging.folder("jar")
    environment = dict(os.environ, CC=packaging.tool("CMAKE_C_COMPILER"), CFLAGS=f"-s -ffile-prefix-map={common.SOURCE}=.",
                       EVENER_PLATFORM=f"linux-{packaging.triplet.split('-')[0]}")
    command = ["mvn", "-B", "-ntp", "-q", "-f", common.SOURCE / "bindings" / "java" / "pom.xml", f"-Devener.target={target}",
               f"-Devener.build={packaging.libraries}", "-DskipTests", "package"]
    try:
        common.run([*command, "-o"], env=environment)
    except common.Failure:  # Maven has not fetched its plugins yet
        common.run(command, env=environment)
    name = f"evener-{packaging.version}.jar"
    if not (target / name).exists():
        raise common.Failure(f"Maven made no {name}: bindings/java/pom.xml has another version than CMakeLists.txt")
    return [shutil.copyfile(target / name, packaging.out / name)]
