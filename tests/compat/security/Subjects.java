import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Prints, for each line `base64 of a certificate TAB mapping rules` of a file, its subject and the name by the rules. */
public class Subjects {
    public static void main(String[] arguments) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] fields = line.split("\t", -1);
            byte[] certificate = Base64.getDecoder().decode(fields[0]);
            X509Certificate read = (X509Certificate) factory.generateCertificate(new java.io.ByteArrayInputStream(certificate));
            String subject = read.getSubjectX500Principal().getName();
            System.out.println(subject);
            try {
                System.out.println(SslPrincipalMapper.fromRules(fields[1]).getName(subject));
            } catch (java.io.IOException refused) {
                System.out.println("no rule");
            }
        }
    }
}
