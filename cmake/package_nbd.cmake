# SPDX-License-Identifier: Apache-2.0
# Moves the loader of network block devices, and what fetches models from them, into a package of its own, sluice-nbd:
# their libraries (TLS, XML and 31 MB of Unicode tables) are then no dependency of an engine without servers. From
# cmake/package_files.cmake.
set(loader ${staged}/libexec/sluice/sluice-loader-nbd)
if(NOT EXISTS ${loader})
  return()
endif()
set(tree ${CPACK_TEMPORARY_DIRECTORY}-nbd)
file(REMOVE_RECURSE ${tree})
file(MAKE_DIRECTORY ${tree}/usr/libexec/sluice ${tree}/usr/share/doc/sluice-nbd ${tree}-scratch/debian)
file(RENAME ${loader} ${tree}/usr/libexec/sluice/sluice-loader-nbd)
file(RENAME ${staged}/libexec/sluice/sluice-fetch-nbd ${tree}/usr/libexec/sluice/sluice-fetch-nbd)
file(COPY ${doc}/copyright DESTINATION ${tree}/usr/share/doc/sluice-nbd)
file(READ ${doc}/changelog text)
string(REGEX REPLACE "^sluice " "sluice-nbd " text "${text}")
file(WRITE ${tree}/usr/share/doc/sluice-nbd/changelog "${text}")
execute_process(COMMAND gzip -9nf ${tree}/usr/share/doc/sluice-nbd/changelog COMMAND_ERROR_IS_FATAL ANY)
file(WRITE ${tree}-scratch/debian/control "Source: sluice\n\nPackage: sluice-nbd\nArchitecture: any\n")
execute_process(COMMAND dpkg-shlibdeps -O ${tree}/usr/libexec/sluice/sluice-loader-nbd
                        ${tree}/usr/libexec/sluice/sluice-fetch-nbd
                WORKING_DIRECTORY ${tree}-scratch OUTPUT_VARIABLE depends ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY
                OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "^shlibs:Depends=" "" depends "${depends}")
execute_process(COMMAND dpkg --print-architecture OUTPUT_VARIABLE architecture OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND du -sk ${tree}/usr OUTPUT_VARIABLE size)
string(REGEX MATCH "^[0-9]+" size "${size}")
execute_process(COMMAND sh -c "find usr -type f -exec md5sum {} +" WORKING_DIRECTORY ${tree} OUTPUT_VARIABLE sums)
file(WRITE ${tree}/DEBIAN/md5sums "${sums}")
file(WRITE ${tree}/DEBIAN/control "Package: sluice-nbd
Version: ${CPACK_PACKAGE_VERSION}
Section: ${CPACK_DEBIAN_PACKAGE_SECTION}
Priority: ${CPACK_DEBIAN_PACKAGE_PRIORITY}
Architecture: ${architecture}
Maintainer: ${CPACK_PACKAGE_CONTACT}
Depends: sluice (= ${CPACK_PACKAGE_VERSION}), ${depends}
Installed-Size: ${size}
Description: read Mixture-of-Experts models from network block devices
 The loader of sluice for experts on servers of the NBD protocol, over TCP or
 a Unix socket, with or without TLS.
")
execute_process(COMMAND chmod -R u=rwX,go=rX ${tree})
execute_process(COMMAND dpkg-deb --root-owner-group -b ${tree}
                        ${CPACK_PACKAGE_DIRECTORY}/sluice-nbd_${CPACK_PACKAGE_VERSION}_${architecture}.deb
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${tree} ${tree}-scratch)
