# SPDX-License-Identifier: Apache-2.0
# Moves the loaders of servers, what fetches models from them, and what sends stores to them, into packages of their own, so that their libraries (TLS, XML and 31 MB of Unicode tables
# for NBD; libcurl with Kerberos, LDAP and SSH; Ceph's with Boost and RDMA) are no dependency of an engine without servers. From
# cmake/package_files.cmake.
#
# package_server(NAME TITLE TEXT): sluice-loader-NAME, sluice-fetch-NAME and, if there is one, sluice-push-NAME become the
# package sluice-NAME.
function(package_server name title text)
  set(loader ${staged}/libexec/sluice/sluice-loader-${name})
  if(NOT EXISTS ${loader})
    return()
  endif()
  set(tree ${CPACK_TEMPORARY_DIRECTORY}-${name})
  file(REMOVE_RECURSE ${tree})
  file(MAKE_DIRECTORY ${tree}/usr/libexec/sluice ${tree}/usr/share/doc/sluice-${name} ${tree}-scratch/debian)
  set(programs)
  foreach(program loader fetch push)
    if(EXISTS ${staged}/libexec/sluice/sluice-${program}-${name})
      file(RENAME ${staged}/libexec/sluice/sluice-${program}-${name} ${tree}/usr/libexec/sluice/sluice-${program}-${name})
      list(APPEND programs ${tree}/usr/libexec/sluice/sluice-${program}-${name})
    endif()
  endforeach()
  file(COPY ${doc}/copyright DESTINATION ${tree}/usr/share/doc/sluice-${name})
  file(READ ${doc}/changelog changes)
  string(REGEX REPLACE "^sluice " "sluice-${name} " changes "${changes}")
  file(WRITE ${tree}/usr/share/doc/sluice-${name}/changelog "${changes}")
  execute_process(COMMAND gzip -9nf ${tree}/usr/share/doc/sluice-${name}/changelog COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${tree}-scratch/debian/control "Source: sluice\n\nPackage: sluice-${name}\nArchitecture: any\n")
  execute_process(COMMAND dpkg-shlibdeps -O ${programs}
                  WORKING_DIRECTORY ${tree}-scratch OUTPUT_VARIABLE depends ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX REPLACE "^shlibs:Depends=" "" depends "${depends}")
  execute_process(COMMAND dpkg --print-architecture OUTPUT_VARIABLE architecture OUTPUT_STRIP_TRAILING_WHITESPACE)
  execute_process(COMMAND du -sk ${tree}/usr OUTPUT_VARIABLE size)
  string(REGEX MATCH "^[0-9]+" size "${size}")
  execute_process(COMMAND sh -c "find usr -type f -exec md5sum {} +" WORKING_DIRECTORY ${tree} OUTPUT_VARIABLE sums)
  file(WRITE ${tree}/DEBIAN/md5sums "${sums}")
  file(WRITE ${tree}/DEBIAN/control "Package: sluice-${name}
Version: ${CPACK_PACKAGE_VERSION}
Section: ${CPACK_DEBIAN_PACKAGE_SECTION}
Priority: ${CPACK_DEBIAN_PACKAGE_PRIORITY}
Architecture: ${architecture}
Maintainer: ${CPACK_PACKAGE_CONTACT}
Depends: sluice (= ${CPACK_PACKAGE_VERSION}), ${depends}
Installed-Size: ${size}
Description: read Mixture-of-Experts models from ${title}
${text}
")
  execute_process(COMMAND chmod -R u=rwX,go=rX ${tree})
  execute_process(COMMAND dpkg-deb --root-owner-group -b ${tree}
                          ${CPACK_PACKAGE_DIRECTORY}/sluice-${name}_${CPACK_PACKAGE_VERSION}_${architecture}.deb
                  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE ${tree} ${tree}-scratch)
endfunction()
package_server(nbd "network block devices"
" The loader of sluice for experts on servers of the NBD protocol, over TCP or
 a Unix socket, with or without TLS.")
package_server(http "web servers and S3"
" The loader of sluice for experts on servers of HTTP and HTTPS, and in object
 stores with the protocol of S3, and what sends stores there.")
package_server(rados "Ceph clusters"
" The loader of sluice for experts in pools of Ceph clusters, through librados,
 and what sends stores there.")
